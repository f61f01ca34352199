"""Switches that let through drafts that the target would not choose, and variables that nobody reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches

from draftproof.errors import SourceError
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.code.serving_modules import serving_modules
from draftproof.stacks.sglang.launch.launch_context import LaunchContext
from draftproof.stacks.sglang.launch.model_findings import declared
from draftproof.stacks.source import SourceTree

ENVIRONMENT = "sglang/srt/environ.py"
VARIABLES = "Envs"
THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
SIMULATED_LENGTH = "SGLANG_SIMULATE_ACC_LEN"
DISABLED_MODELS = "SGLANG_DISABLED_MODEL_ARCHS"
PREFIXES = ("SGLANG_", "SGL_")
_LOSSLESS = "Nothing in the command lets through drafts that the target would not have chosen."
_EXPECTED = "acceptance thresholds of 1, and no simulated acceptance"
_REGISTERED = "The command keeps no class that serves this checkpoint from being registered."
_READ = "Every variable of the stack that the command sets is one that this version reads."


def declared_variables(tree: SourceTree) -> Reading[dict[str, Place]]:
    """The environment variables that the version declares."""
    looked_for = f"looked for class {VARIABLES} in {ENVIRONMENT}"
    try:
        module = tree.syntax(ENVIRONMENT)
    except SourceError as error:
        return not_understood(f"{looked_for}: {error}")
    cls = next((n for n in module.body if isinstance(n, ast.ClassDef) and n.name == VARIABLES), None)
    if cls is None:
        return not_understood(f"{looked_for}, and there is none")
    names = {
        target.id: Place(ENVIRONMENT, statement.lineno)
        for statement in cls.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    return found(names, f"{len(names)} variables are declared", Place(ENVIRONMENT, cls.lineno))


def honesty_findings(context: LaunchContext) -> Iterator[LaunchFinding]:
    """Lossy switches, and a word when there are none."""
    findings = [*_thresholds(context), *_simulation(context)]
    yield from findings
    if not any(finding.ruling is Ruling.BREAKS for finding in findings):
        places = tuple(place for field in THRESHOLDS for place in declared(context, field)[1])
        yield LaunchFinding(
            "lossless", "", Ruling.HOLDS, _LOSSLESS, _EXPECTED, "no such switch is in force", "", places
        )


def _thresholds(context: LaunchContext) -> Iterator[LaunchFinding]:
    for field in THRESHOLDS:
        value = context.resolution.value(field)
        if isinstance(value, (int, float)) and value < 1.0:
            name, places = declared(context, field)
            yield LaunchFinding(
                check="lossless",
                subject=f"{name} {value:g}",
                ruling=Ruling.BREAKS,
                claim=_LOSSLESS,
                expected=_EXPECTED,
                observed="accepts drafts that the target gives this probability, not those that it chooses",
                remedy=f"leave {name} out",
                places=places,
            )


def _simulation(context: LaunchContext) -> Iterator[LaunchFinding]:
    value = context.command.variable(SIMULATED_LENGTH)
    if value is None or not _is_positive(value):
        return
    variables = declared_variables(context.tree)
    place = (variables.value or {}).get(SIMULATED_LENGTH)
    subject = f"{SIMULATED_LENGTH}={value}"
    if variables.value is not None and place is None:
        return
    yield LaunchFinding(
        check="lossless",
        subject=subject,
        ruling=Ruling.BREAKS if place is not None else Ruling.UNKNOWN,
        claim=_LOSSLESS,
        expected=_EXPECTED,
        observed="accepts a number of drafts that is made up, whatever the target says"
        if place is not None
        else f"{subject}: {variables.sentence}",
        remedy=f"unset {SIMULATED_LENGTH}",
        places=(place,) if place is not None else (),
    )


def _is_positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def variable_findings(context: LaunchContext) -> Iterator[LaunchFinding]:
    """Variables that switch the head off, and variables that the version does not read."""
    variables = declared_variables(context.tree)
    names = variables.value or {}
    for entry in context.command.environment:
        if not entry.name.startswith(PREFIXES):
            continue
        if entry.name == DISABLED_MODELS and entry.name in names:
            yield from _disabled_models(context, entry.value, names[entry.name])
        if entry.name in names:
            yield LaunchFinding(
                "variables-read", entry.name, Ruling.HOLDS, _READ, "a declared variable", "is declared", "",
                (names[entry.name],),
            )  # fmt: skip
        elif names and not context.tree.containing("sglang", f'"{entry.name}"'):
            near = get_close_matches(entry.name, names, n=1, cutoff=0.8)
            yield LaunchFinding(
                "variables-read", entry.name, Ruling.WARNS, _READ, "a declared variable",
                "is not declared, and no file of this version names it",
                near[0] if near else f"unset {entry.name}", variables.places,
            )  # fmt: skip


def _disabled_models(context: LaunchContext, value: str, declared_at: Place) -> Iterator[LaunchFinding]:
    """Whether a list of modules that stay unregistered holds one that the checkpoint is served with."""
    listed = [part.strip() for part in value.split(",")]
    for module in serving_modules(context.tree, context.checkpoint):
        places = (*module.registered.places, declared_at)
        if module.name in listed and module.name:
            ruling = Ruling.BREAKS
            observed = f"keeps the module {module.name}, which holds {module.holds}, from being registered"
        elif not module.registered.understood:
            ruling = Ruling.UNKNOWN
            observed = f"it is open which module holds {module.holds}: {module.registered.sentence}"
        else:
            continue
        yield LaunchFinding(
            check="models-registered",
            subject=f"{DISABLED_MODELS}={value}",
            ruling=ruling,
            claim=_REGISTERED,
            expected="none of the modules that serve this checkpoint",
            observed=observed,
            remedy=f"unset {DISABLED_MODELS}",
            places=places,
        )
