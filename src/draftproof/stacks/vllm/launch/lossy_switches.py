"""Keys of a speculative configuration with which the text is no longer the target's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.errors import SourceError
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.launch.options import SPECULATIVE, SpeculativeKeys

METHOD = "rejection_sample_method"
_LOSSLESS = {
    "standard": "a draft is accepted with the ratio of the two probabilities",
    "strict": "a draft is accepted only when it is the target's own token",
    "probabilistic": "a draft is accepted with the ratio of the two probabilities",
    "block": "the drafts of a pass are accepted together, with the target's distribution",
}
"""Ways to accept that keep the target's distribution, by the names that versions give them."""
_LOSSY = {
    "synthetic": "drafts are accepted by a chance set beforehand, whatever the target says: a switch "
    "for benchmarks",
    "fly": "drafts are accepted although the target would not have drawn them",
}


def lossless_finding(
    values: Mapping[str, Any], keys: SpeculativeKeys, tree: SourceTree
) -> Iterator[LaunchFinding]:
    """Whether accepted drafts are tokens of the target's distribution."""
    field = keys.get(METHOD)
    if field is None:
        return
    default = field.default.strip("'\"")
    chosen = values.get(METHOD, default)
    subject = f'"{METHOD}": "{chosen}"'
    claim = "The text keeps the distribution of the target: no lossy acceptance."
    expected = f"{METHOD} of {' or '.join(name for name in _LOSSLESS if name in field.type.choices)}"
    places = (field.place, *_mentions(tree, str(chosen)))
    remedy = f'leave "{METHOD}" out; the default is {default}'
    if chosen in _LOSSY:
        yield LaunchFinding(
            "lossless", subject, Ruling.BREAKS, claim, expected, _LOSSY[chosen], remedy, places
        )
    elif chosen in _LOSSLESS:
        yield LaunchFinding(
            "lossless", subject, Ruling.HOLDS, claim, expected, _LOSSLESS[chosen], "", (field.place,)
        )
    else:
        observed = "what this way of accepting does to the text is not known"
        yield LaunchFinding("lossless", subject, Ruling.UNKNOWN, claim, expected, observed, remedy, places)


def _mentions(tree: SourceTree, word: str) -> tuple[Place, ...]:
    """The first test of that word in the configuration, to show what it does."""
    try:
        module = tree.syntax(SPECULATIVE)
    except SourceError:
        return ()
    for node in ast.walk(module):
        if isinstance(node, ast.Compare) and any(
            isinstance(part, ast.Constant) and part.value == word for part in node.comparators
        ):
            return (Place(SPECULATIVE, node.lineno),)
    return ()
