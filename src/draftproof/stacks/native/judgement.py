"""Link 4 for draftproof's own engine: a command of `draftproof serve` or `generate`, option by option."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import LaunchFinding, LaunchJudgement, ResolvedLaunch, Ruling
from draftproof.stacks.native.carried_out import EngineInForce, carried_out
from draftproof.stacks.native.flag_findings import DRAFT_TOKENS, existence, values
from draftproof.stacks.native.given_words import ENVIRONMENT, GivenWords, given_words
from draftproof.stacks.native.options import DeclaredCommand, read_command
from draftproof.stacks.native.own_source import BUILD, GENERATE, SERVE, function_place
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree

NEXTN = "nextn"
DRAFTER, POLICY, SIMULATED, CONFIG_FILE = "drafter", "draft_policy", "simulate_accept_length", "config"
_ACCEPTANCE = "draftproof/kernels/acceptance/reference.py"
_EXISTS = "Every option of the command exists in this version."
_TOGETHER = "The options of the command go together."
_STARTS = "The command starts a server."


@dataclass(frozen=True)
class _Judged:
    """A command on its way to a judgement."""

    tree: SourceTree
    checkpoint: ServedCheckpoint
    situation: Situation
    command: DeclaredCommand
    given: GivenWords
    engine: EngineInForce

    def places(self, parameter: str) -> tuple[Place, ...]:
        """Where the option of a parameter is declared."""
        declared = self.command.filling(parameter)
        return (declared.option.place,) if declared else ()

    @property
    def file(self) -> str:
        """The file of options that the command names; empty for none."""
        word = self.given.of(CONFIG_FILE)
        return "" if word is None else word.value or ""


def judge(
    tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation, command: Command
) -> LaunchJudgement:
    """A command, and what the engine makes of it.

    Raises:
        SourceError: a file of the engine cannot be read or parsed.
    """
    reading = read_command(tree, command_name(command))
    if reading.value is None:
        return _open_judgement(reading.sentence)
    declared = reading.value
    given = given_words(tree, command, declared)
    words = (*existence(given, declared), *values(tree, given))
    engine = EngineInForce(lost="its parser refuses the command")
    if not any(finding.ruling is Ruling.BREAKS for finding in words):
        engine = carried_out(tree, declared, given)
    judged = _Judged(tree, checkpoint, situation, declared, given, engine)
    findings = (*words, *_checkpoint_named(judged), *_together(judged), *_device(judged), *_drafting(judged))
    return LaunchJudgement((*findings, _lossless(judged)), _resolved(judged))


def command_name(command: Command) -> str:
    """Which command of draftproof it is; the server when only options were given."""
    return GENERATE if GENERATE in command.program[-1:] else SERVE


def _open_judgement(reason: str) -> LaunchJudgement:
    answer: Reading[str] = not_understood(reason)
    count: Reading[int] = not_understood(reason)
    finding = LaunchFinding("option-exists", "", Ruling.UNKNOWN, _EXISTS, "a table of options", reason)
    return LaunchJudgement((finding,), ResolvedLaunch(answer, count, answer))


def _checkpoint_named(judged: _Judged) -> Iterator[LaunchFinding]:
    name = judged.checkpoint.name
    option = judged.given.of("model_path")
    named = judged.given.positionals[:1] or ((option.value or "",) if option else ())
    if not named and judged.file:
        return
    first = named[0] if named else ""
    yield LaunchFinding(
        check="model-path",
        subject=first,
        ruling=Ruling.HOLDS if first == name else Ruling.BREAKS,
        claim="The command runs this checkpoint.",
        expected=name,
        observed=first or "no checkpoint",
        remedy="" if first == name else f"name {name} first",
        places=judged.places("model_path"),
    )


def _together(judged: _Judged) -> Iterator[LaunchFinding]:
    """What the command's own function says about its options, followed line by line."""
    engine = judged.engine
    places = (engine.place,) if engine.place else ()
    expected = "a function that comes to an engine with these options"
    if judged.file:
        yield LaunchFinding(
            "config-file",
            f"--config {judged.file}",
            Ruling.UNKNOWN,
            "Everything that the server is told is in the command.",
            "options in the command alone",
            f"the options in {judged.file} were not seen here",
            "write them into the command",
            judged.places(CONFIG_FILE),
        )
    elif engine.refusal is not None:
        message = engine.refusal.message
        yield LaunchFinding(
            "options-together", "", Ruling.BREAKS, _TOGETHER, expected, message, message, places
        )
    elif engine.starts_other:
        observed = "--stack names another stack"
        yield LaunchFinding(
            "starts", "", Ruling.BREAKS, _STARTS, "draftproof's own server", observed, "", places
        )
    elif engine.lost and engine.place:
        yield LaunchFinding(
            "options-together", "", Ruling.UNKNOWN, _TOGETHER, expected, engine.lost, "", places
        )
    elif engine.values:
        observed = f"draftproof {judged.command.name} comes to an engine"
        yield LaunchFinding("options-together", "", Ruling.HOLDS, _TOGETHER, expected, observed, "", places)
    if judged.given.of("dry_run") is not None:
        observed = "--dry-run shows what is in force and starts nothing"
        yield LaunchFinding(
            "starts", "--dry-run", Ruling.BREAKS, _STARTS, "no such option", observed, "leave it out",
            judged.places("dry_run"),
        )  # fmt: skip


def _device(judged: _Judged) -> Iterator[LaunchFinding]:
    ranks, gpu = judged.situation.tensor_parallel, judged.situation.gpu
    if ranks > 1:
        yield LaunchFinding(
            check="tensor-parallel",
            subject=f"{ranks} GPUs",
            ruling=Ruling.BREAKS,
            claim="The engine splits a layer over that many GPUs.",
            expected=f"an option that splits layers over {ranks} devices",
            observed="this engine runs on one device",
            remedy="SGLang or vLLM for several GPUs",
        )
    device = judged.engine.values.get("device")
    if gpu is not None and isinstance(device, str) and not judged.file:
        is_used = device.startswith("cuda")
        yield LaunchFinding(
            check="device-used",
            subject=f"--device {device}",
            ruling=Ruling.HOLDS if is_used else Ruling.WARNS,
            claim=f"The engine runs on the {gpu.title}.",
            expected="a device that is a GPU",
            observed="a GPU" if is_used else "the GPU is not used",
            remedy="" if is_used else "--device cuda",
            places=judged.places("device"),
        )


def _drafting(judged: _Judged) -> Iterator[LaunchFinding]:
    """Who decides how many drafts a window gets."""
    policy, drafts = judged.engine.values.get(POLICY), judged.engine.values.get(DRAFT_TOKENS)
    if not isinstance(policy, str) or not drafts or judged.command.name != SERVE or judged.file:
        return
    chooses = function_place(judged.tree, BUILD, "draft_choice")
    is_adaptive = policy == "adaptive"
    yield LaunchFinding(
        check="draft-policy",
        subject=f"--draft-policy {policy}",
        ruling=Ruling.HOLDS if is_adaptive else Ruling.WARNS,
        claim="Drafts are taken only for batches in which they give more tokens a second.",
        expected="a number of drafts that is chosen for each batch, none among the choices",
        observed=f"from none to {drafts} drafts, by measured step times and acceptance"
        if is_adaptive
        else f"always {drafts} drafts, also for batches in which they cost more than they give",
        remedy="" if is_adaptive else "--draft-policy adaptive",
        places=(*judged.places(POLICY), *((chooses,) if chooses else ())),
    )


def _lossless(judged: _Judged) -> LaunchFinding:
    """Acceptance is by equality with the target's own draw; one option makes it up instead."""
    place = function_place(judged.tree, _ACCEPTANCE, "count_accepted")
    places = (*judged.places(SIMULATED), *((place,) if place else ()))
    option, word = judged.command.filling(SIMULATED), judged.given.of(SIMULATED)
    ruling, observed = Ruling.HOLDS, "a draft is accepted when it equals the target's own draw"
    remedy, subject = "", ""
    if option is None:
        observed += "; there is no option for it"
    elif word is not None:
        ruling, subject, remedy = Ruling.BREAKS, word.text, "leave it out"
        observed = "acceptance is made up: drafts stand unjudged, and the text means nothing"
    elif judged.file:
        ruling, observed = Ruling.UNKNOWN, f"{judged.file} may ask for {option.option.name}"
    else:
        observed += f"; {option.option.name}, which would make it up, is not given"
    return LaunchFinding(
        check="lossless",
        subject=subject,
        ruling=ruling,
        claim="No option lets a draft stand that the target would not have drawn.",
        expected="no option that touches acceptance",
        observed=observed,
        remedy=remedy,
        places=places,
    )


def _resolved(judged: _Judged) -> ResolvedLaunch:
    require = function_place(judged.tree, BUILD, "_require_head")
    path = found(
        judged.checkpoint.name,
        "the head's weights are those of the checkpoint itself, and must be there",
        *((require,) if require else ()),
    )
    options = tuple(
        (declared.option.name, str(value), _origin(judged, parameter))
        for parameter, field in _SHOWN
        if (declared := judged.command.filling(parameter)) is not None
        and (value := judged.engine.values.get(field)) is not None
    )
    return ResolvedLaunch(_algorithm(judged), _draft_tokens(judged), path, options)


_SHOWN = (
    ("device", "device"),
    ("dtype", "compute_type"),
    ("compute_type", "compute_type"),
    ("weights", "weight_storage"),
    ("weight_storage", "weight_storage"),
    ("max_num_seqs", "max_sequences"),
    ("draft_policy", "draft_policy"),
    ("prefix_snapshots", "prefix_snapshots"),
)
"""Parameters, and the fields of the engine's config that they fill."""


def _origin(judged: _Judged, parameter: str) -> str:
    word = judged.given.of(parameter)
    return "default" if word is None else word.source


def _unknown(judged: _Judged, *parameters: str) -> str:
    """Why nothing can be said about what these options decide; empty when it can."""
    if judged.file and any(judged.given.of(name) is None for name in parameters):
        return f"the options in {judged.file} were not seen here"
    if judged.engine.values:
        return ""
    refusal = judged.engine.refusal
    return (
        refusal.message if refusal is not None else judged.engine.lost or "the command is about another stack"
    )


def _algorithm(judged: _Judged) -> Reading[str]:
    wiring = function_place(judged.tree, BUILD, "wire_engine")
    places = (*judged.places(DRAFTER), *((wiring,) if wiring else ()))
    unknown = _unknown(judged, DRAFTER, DRAFT_TOKENS)
    if unknown:
        return not_understood(unknown, *places)
    drafter = judged.engine.values.get(DRAFTER)
    if drafter == NEXTN:
        return found(NEXTN, "the head drafts", *places)
    return absent(f"the drafter is {drafter}, which does not draft with the head", *places)


def _draft_tokens(judged: _Judged) -> Reading[int]:
    places = judged.places(DRAFT_TOKENS)
    unknown = _unknown(judged, DRAFT_TOKENS)
    count = judged.engine.values.get(DRAFT_TOKENS)
    if unknown or not isinstance(count, int):
        return not_understood(unknown or "looked for a number of drafts", *places)
    word = judged.given.of(DRAFT_TOKENS) or judged.given.of("speculative_config")
    origin = (
        "by default" if word is None else "from the environment" if word.source == ENVIRONMENT else "as given"
    )
    return found(count, f"K={count}, {origin}", *places)
