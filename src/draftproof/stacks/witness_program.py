"""The program that an installed stack's own Python runs to say what its argument parser takes.

It builds the parser and nothing else: no model is opened and no GPU is touched. What it has to say goes to
standard output behind a marker, since importing a stack prints things of its own.
"""

from __future__ import annotations

from draftproof.stacks.stack import StackKind

MARKER = "draftproof-parser-answer "

_SGLANG = """
import argparse
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
"""

_VLLM = """
import importlib
def first(modules, name):
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            pass
    raise ImportError(name + " in none of " + ", ".join(modules))
make = first(("vllm.entrypoints.common.cli_args", "vllm.entrypoints.openai.cli_args"), "make_arg_parser")
kind = first(("vllm.utils.argparse_utils", "vllm.utils"), "FlexibleArgumentParser")
parser = make(kind())
"""

_ANSWER = """
import io, json, contextlib, sys
def words(choices):
    return None if choices is None else [str(choice) for choice in choices]
options = [
    {"names": list(action.option_strings), "choices": words(action.choices)}
    for action in parser._actions if action.option_strings
]
answer = {"options": options, "accepted": None, "message": ""}
given = json.loads(sys.argv[1])
if given is not None:
    heard = io.StringIO()
    try:
        with contextlib.redirect_stderr(heard):
            parser.parse_args(given)
        answer["accepted"] = True
    except SystemExit:
        answer["accepted"] = False
        lines = [line for line in heard.getvalue().splitlines() if line.strip()]
        answer["message"] = lines[-1].strip() if lines else ""
sys.stdout.write("\\n" + MARKER + json.dumps(answer) + "\\n")
"""


def witness_program(kind: StackKind) -> str | None:
    """The program for a stack; None for a stack whose parser is not asked."""
    builders = {StackKind.SGLANG: _SGLANG, StackKind.VLLM: _VLLM}
    builder = builders.get(kind)
    return None if builder is None else f"MARKER = {MARKER!r}\n{builder}\n{_ANSWER}"
