"""Environment variables that a version of vLLM knows, and those of a command that it does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from draftproof.errors import SourceError
from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.definitions import find_definition

ENVIRONMENT = "vllm/envs.py"
TABLE = "environment_variables"
PREFIX = "VLLM_"
_OTHER_STACK = "SGLANG_"


def known_variables(tree: SourceTree) -> Reading[Mapping[str, Place]]:
    """The variables of this version, and where each is declared."""
    wanted = f"a dictionary {TABLE} in {ENVIRONMENT}"
    try:
        defined = find_definition(tree, ENVIRONMENT, TABLE)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    if defined is None or not isinstance(defined.node, ast.Dict):
        return not_understood(f"looked for {wanted}", Place(ENVIRONMENT, 1))
    names = {
        key.value: Place(defined.file, key.lineno)
        for key in defined.node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    return found(names, f"{len(names)} variables", defined.place)


def environment_findings(command: Command, tree: SourceTree, version: str) -> Iterator[LaunchFinding]:
    """What is to say about the variables that a command sets for vLLM."""
    given = [v for v in command.environment if v.name.startswith((PREFIX, _OTHER_STACK))]
    if not given:
        return
    known = known_variables(tree)
    for variable in given:
        subject = f"{variable.name}={variable.value}"
        claim = f"Every variable that the command sets for the server is one that {version} reads."
        expected = f"a name of {TABLE} in {ENVIRONMENT}"
        check = "environment-known"
        if known.value is None:
            yield LaunchFinding(
                check, subject, Ruling.UNKNOWN, claim, expected, known.sentence, "", known.places
            )
        elif variable.name in known.value:
            place = known.value[variable.name]
            yield LaunchFinding(check, subject, Ruling.HOLDS, claim, expected, "it is declared", "", (place,))
        else:
            near = get_close_matches(variable.name, known.value, n=2, cutoff=0.75)
            remedy = f"did you mean {' or '.join(near)}?" if near else f"leave {variable.name} out"
            whose = "; it is SGLang's" if variable.name.startswith(_OTHER_STACK) else ""
            observed = f"it is none of {len(known.value)} variables, so that it has no effect{whose}"
            yield LaunchFinding(check, subject, Ruling.WARNS, claim, expected, observed, remedy, known.places)
