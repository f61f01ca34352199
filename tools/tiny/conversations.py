"""Short conversations made from code and documentation, in the chat format that the checkpoint answers in.

The assistant's turn begins with the empty think block that the template writes when thinking is off, so that
the model meets at inference what it met in training.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator

NO_THINKING = "<think>\n\n</think>\n\n"
_WRITE = (
    "Write a Python function `{name}`. {task}",
    "Implement `{name}` in Python.\n\n{task}",
    "Please write a function called {name} that does this: {task}",
    "How would you write `{name}` in Python? {task}",
)
_EXPLAIN = (
    "What does this function do?\n\n```python\n{code}\n```",
    "Explain this code:\n\n```python\n{code}\n```",
    "Describe the following Python function in a few words.\n\n```python\n{code}\n```",
)
_TOPIC = ("What is {topic}?", "Tell me about {topic}.", "Explain {topic}.", "{topic}")
_HEADING = re.compile(r"^(?P<title>[^\n]{4,60})\n(?P<rule>[=\-~^*\"'#])(?P=rule){3,}\n+", re.MULTILINE)


def conversation(question: str, answer: str) -> str:
    """One user turn and one assistant turn, ended by `<|im_end|>`."""
    return (
        f"<|im_start|>user\n{question.strip()}<|im_end|>\n"
        f"<|im_start|>assistant\n{NO_THINKING}{answer.strip()}<|im_end|>\n"
    )


def from_code(text: str, chance: random.Random) -> Iterator[str]:
    """Conversations about the documented functions of a Python file; none when it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    lines = text.split("\n")
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.end_lineno is None:
            continue
        first = _first_paragraph(ast.get_docstring(node) or "")
        length = node.end_lineno - node.lineno
        if not 25 <= len(first) <= 300 or not 3 <= length <= 40 or node.name.startswith("test"):
            continue
        code = _dedent(lines[node.lineno - 1 : node.end_lineno])
        if chance.random() < 0.7:
            question = chance.choice(_WRITE).format(name=node.name, task=first)
            yield conversation(question, f"```python\n{code}\n```")
        else:
            yield conversation(chance.choice(_EXPLAIN).format(code=_without_docstring(node, lines)), first)


def from_prose(text: str, chance: random.Random) -> Iterator[str]:
    """Conversations from the headings of a reStructuredText file and the paragraph under each."""
    for match in _HEADING.finditer(text):
        paragraph = _first_paragraph(text[match.end() :])
        plain = not paragraph.startswith((".. ", ":", "*", "-", "|", "+", "`"))
        if plain and 80 <= len(paragraph) <= 900 and paragraph.rstrip().endswith("."):
            yield conversation(chance.choice(_TOPIC).format(topic=match["title"].strip()), paragraph)


def _first_paragraph(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text.strip().split("\n\n")[0]).strip()


def _dedent(lines: list[str]) -> str:
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] if line[:indent].strip() == "" else line for line in lines)


def _without_docstring(node: ast.FunctionDef, lines: list[str]) -> str:
    documented = node.body[0]
    end = documented.end_lineno or documented.lineno
    return _dedent(lines[node.lineno - 1 : documented.lineno - 1] + lines[end : node.end_lineno])
