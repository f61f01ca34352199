"""Link 4 for draftproof's own engine: commands of `serve` and `generate`, judged from its source."""

import json
from dataclasses import replace
from enum import Enum
from typing import get_args, get_type_hints

import pytest
import typer

from draftproof.cli import native_server
from draftproof.cli.generate import generate
from draftproof.cli.main import build, run
from draftproof.cli.serve import serve
from draftproof.engine.status import EngineStatus
from draftproof.errors import UsageError
from draftproof.evidence import Verdict
from draftproof.hardware.gpu_choice import find_gpu
from draftproof.links.launch import check_launch
from draftproof.server.live_links import with_live_links
from draftproof.server.served_chain import LinkState, ServedChain, ServedLink
from draftproof.stacks.command.command import Command, GivenFlag, Variable
from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.launch_facts import Ruling
from draftproof.stacks.native.options import read_command
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import StackKind
from tests.support.fake_engine import READY
from tests.support.own_stack import RULES, claims, own, release

CHECKPOINT = release("Qwen_Qwen3.5-9B")


def judged(words, command="serve", situation=None, environment=(), stack=None):
    """A command line of a checkpoint, judged."""
    given = parse_command(f"draftproof {command} {CHECKPOINT.name} {words}")
    given = Command(environment, given.program, given.flags, given.positionals, given.stack)
    return RULES.judge(stack or own(), CHECKPOINT, situation or Situation(), given)


def broken(judgement):
    return {finding.check for finding in judgement.findings if finding.ruling is Ruling.BREAKS}


def finding(judgement, check, ruling=None):
    own_check = [each for each in judgement.findings if each.check == check]
    return next(each for each in own_check if ruling is None or each.ruling is ruling)


def parsers_view(function):
    """Names, choices and limits of every option, as the parser has them once the function is imported."""
    app = typer.Typer(add_completion=False)
    app.command()(function)
    hints = get_type_hints(function)
    seen = {}
    for parameter in typer.main.get_command(app).params:
        names = sorted((*parameter.opts, *parameter.secondary_opts))
        # Versions of typer keep limits in the parameter or in its type.
        limited = parameter if hasattr(parameter, "min") else parameter.type
        hint = hints.get(parameter.name)
        enums = [one for one in (hint, *get_args(hint)) if isinstance(one, type) and issubclass(one, Enum)]
        choices = [str(member.value) for enum in enums for member in enum]
        for name in names:
            if name.startswith("--") and name != "--help":
                limits = getattr(limited, "min", None), getattr(limited, "max", None)
                seen[name] = (names, limits, choices)
    return seen


@pytest.mark.parametrize("function", [serve, generate])
def test_options_are_those_of_the_command_line(function):
    declared = read_command(own().tree, function.__name__).value
    assert declared is not None
    read = {}
    for each in declared.options:
        names = sorted((each.option.name, *each.option.aliases))
        for name in names:
            if name.startswith("--"):
                read[name] = (names, (each.smallest, each.largest), list(each.option.choices))
    assert read == parsers_view(function)


@pytest.mark.parametrize(
    ("name", "gpu"),
    [("Qwen_Qwen3.6-35B-A3B-FP8", "h200"), ("Qwen_Qwen3.5-9B", "h200"), ("Qwen_Qwen3.6-35B-A3B-FP8", None)],
)
def test_the_proposed_command_serves_and_is_accepted_and_every_word_has_a_place(name, gpu):
    situation = Situation(find_gpu(gpu) if gpu else None)
    plan = RULES.plan(own(), release(name), situation)
    assert plan.words[:3] == ("draftproof", "serve", name)
    assert all(flag.reason for flag in plan.flags)
    assert all(flag.places for flag in plan.flags)
    assert ("--device" in plan.words) == (gpu is not None)
    report = check_launch(release(name), own(), RULES, situation)
    assert report.verdict is Verdict.PROVEN, report.summary
    command = claims(report)["command"].observed
    for words in ("--drafter nextn", "--k 3", "--draft-policy adaptive", "--max-length", "--max-num-seqs 8"):
        assert words in command


def test_the_proposed_command_starts_as_it_is_written(capsys):
    words = RULES.plan(own(), release("Qwen_Qwen3.5-9B"), Situation(find_gpu("h200"), concurrency=32)).words
    assert run([*words[1:], "--dry-run", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)
    assert (settings["drafter"], settings["draft_tokens"], settings["max_sequences"]) == ("nextn", 3, 32)


@pytest.mark.parametrize("command", ["serve", "generate"])
@pytest.mark.parametrize(
    ("words", "check"),
    [
        ("--num-speculative-tokens 3", "option-exists"),
        ("--draft-tok 3", "option-exists"),
        ("more words than it takes", "option-exists"),
        ("--drafter eagle3", "option-value"),
        ("--k 17", "option-value"),
        ("--k -1", "option-value"),
        ("--k three", "option-value"),
        ("--k", "option-value"),
        ("--dtype float8", "option-value"),
        ("--dtype BFLOAT16", "option-value"),
        ("--weights=", "option-value"),
        ("--device cuda --dtype float32", "options-together"),
        ("--device cuda --k 8", "options-together"),
        ("--draft-vocabulary all", "options-together"),
        ("--dry-run", "starts"),
    ],
)
def test_a_wrong_command_is_rejected_with_the_reason(command, words, check):
    judgement = judged(f"prompt {words}" if command == "generate" else words, command)
    assert broken(judgement) == {check}
    wrong = finding(judgement, check, Ruling.BREAKS)
    assert wrong.expected or wrong.remedy


@pytest.mark.parametrize(
    ("words", "check", "observed"),
    [
        ("--speculative-config 3", "option-value", "3"),
        ('--speculative-config \'{"method": "eagle"}\'', "options-together", "'eagle'"),
        ("--speculative-num-draft-tokens 3", "options-together", "K is 3"),
        ("--speculative-eagle-topk 2", "options-together", "tree of drafts"),
        (
            "--k 2 --speculative-config '{\"num_speculative_tokens\": 3}'",
            "options-together",
            "3 drafts a pass",
        ),
        ("--enable-prefix-caching --disable-radix-cache", "options-together", "both given"),
        ("--mem-fraction-static 0.8", "options-together", "the device is cpu"),
        ("--device cuda --max-num-seqs 65", "options-together", "at most 64"),
        ("--reasoning-parser deepseek_r1", "options-together", "Qwen's format"),
        ("--model-path other", "options-together", "two checkpoints"),
        ("--gpu h200", "options-together", "--gpu means nothing"),
        ("--port 70000", "option-value", "70000"),
        ("--stack sglang", "starts", "another stack"),
        ("--stack native,vllm", "starts", "another stack"),
    ],
)
def test_what_the_server_would_refuse_is_refused_with_its_own_words(words, check, observed):
    judgement = judged(words)
    assert broken(judgement) == {check}
    assert observed in finding(judgement, check, Ruling.BREAKS).observed


ACCEPTED = (
    "",
    "--k 2",
    "--speculative-algorithm NEXTN --speculative-num-steps 2",
    "--speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3",
    '--speculative-config \'{"method": "mtp", "num_speculative_tokens": 2}\' --no-enable-prefix-caching',
    "--device cuda --gpu-memory-utilization 0.9 --api-key a --api-key b --served-model-name one",
    "--device cuda --draft-policy fixed --simulate-accept-length 2.0",
    "--device cuda --simulate-accept-length 2.0",
    "--k 0",
    "--drafter none",
    "--k 17",
    "--api-key one two",
    "--port 65536 --port 1 --k 17 --k 2",
    "--port 1 --port 65536",
    "--enable-prefix-caching=1",
    "--log-level warning --metrics-compat vllm --chat-template some/file",
)


@pytest.mark.parametrize("words", ACCEPTED)
def test_the_judgement_is_what_the_command_line_does(words, capsys):
    """The words that are judged to be wrong are those that `serve` refuses, with its reason."""
    line = parse_command(f"draftproof serve {CHECKPOINT.name} {words}")
    code = run(["serve", *line.arguments, "--dry-run", "--json"])
    shown = capsys.readouterr()
    judgement = judged(words)
    refused = {check for check in broken(judgement) if check.startswith("option")}
    assert bool(refused) == (code != 0), shown.err
    if code == 0:
        settings = json.loads(shown.out)
        assert judgement.resolved.draft_tokens.value == settings["draft_tokens"]
        drafts = settings["drafter"] == "nextn" and settings["draft_tokens"] > 0
        assert judgement.resolved.algorithm.is_found == drafts
        in_force = {name: value for name, value, _ in judgement.resolved.options}
        assert in_force["--draft-policy"] == settings["draft_policy"]
        assert in_force["--prefix-snapshots"] == str(settings["prefix_snapshots"])


def test_a_right_command_says_what_is_in_force():
    judgement = judged("--speculative-algorithm NEXTN --speculative-num-steps 2")
    assert broken(judgement) == set()
    assert judgement.resolved.algorithm.value == "nextn"
    assert judgement.resolved.draft_tokens.value == 2
    assert ("--device", "cpu", "default") in judgement.resolved.options
    assert "from none to 2 drafts" in finding(judgement, "draft-policy").observed
    assert judged("").resolved.draft_tokens.value == 3


@pytest.mark.parametrize("command", ["serve", "generate"])
def test_switching_the_drafter_off_is_seen(command):
    words = "--drafter none" if command == "serve" else "prompt --drafter none"
    resolved = judged(words, command).resolved
    assert not resolved.algorithm.is_found
    assert resolved.algorithm.understood


def test_always_k_drafts_is_a_warning_and_generate_has_no_choice():
    assert finding(judged("--draft-policy fixed"), "draft-policy").ruling is Ruling.WARNS
    assert broken(judged("--draft-policy fixed")) == set()
    assert "draft-policy" not in {each.check for each in judged("prompt", "generate").findings}


def test_made_up_acceptance_is_disproved_as_lossy():
    judgement = judged("--device cuda --draft-policy fixed --simulate-accept-length 2.5")
    assert broken(judgement) == {"lossless"}
    lossy = finding(judgement, "lossless")
    assert "the text means nothing" in lossy.observed
    assert lossy.subject == "--simulate-accept-length 2.5"
    assert [place.file for place in lossy.places] == [
        "draftproof/cli/serve.py",
        "draftproof/kernels/acceptance/reference.py",
    ]
    assert "is not given" in finding(judged(""), "lossless").observed
    assert "there is no option" in finding(judged("prompt", "generate"), "lossless").observed


def test_a_gpu_that_the_command_does_not_use_is_a_warning():
    situation = Situation(find_gpu("h200"))
    unused = finding(judged("", situation=situation), "device-used")
    assert (unused.ruling, unused.remedy) == (Ruling.WARNS, "--device cuda")
    assert finding(judged("--device cuda", situation=situation), "device-used").ruling is Ruling.HOLDS


def test_variables_are_read_as_the_command_line_reads_them(monkeypatch, capsys):
    variables = (Variable("DRAFTPROOF_SERVE_K", "2"), Variable("DRAFTPROOF_SERVE_MAX_MODEL_LEN", "x"))
    judgement = judged("--max-model-len 64", environment=variables[:1])
    assert judgement.resolved.draft_tokens.value == 2
    assert judged("--k 1", environment=variables[:1]).resolved.draft_tokens.value == 1
    assert broken(judged("", environment=variables)) == {"option-value"}
    unread = finding(judged("", environment=(Variable("DRAFTPROOF_SERVE_DRAFTS", "2"),)), "option-exists")
    assert unread.ruling is Ruling.WARNS
    both = (Variable("DRAFTPROOF_SERVE_DRAFT_TOKENS", "1"), Variable("DRAFTPROOF_SERVE_K", "2"))
    empty = (Variable("DRAFTPROOF_SERVE_MAX_MODEL_LEN", ""),)
    assert judged("", environment=(*both, *empty)).resolved.draft_tokens.value == 2
    assert broken(judged("", environment=empty)) == set()
    for variable in (*both, *empty):
        monkeypatch.setenv(variable.name, variable.value)
    assert run(["serve", "tiny", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["draft_tokens"] == 2


def test_a_file_of_options_leaves_open_what_it_may_say():
    judgement = judged("--config options.yaml")
    assert finding(judgement, "config-file").ruling is Ruling.UNKNOWN
    assert finding(judgement, "lossless").ruling is Ruling.UNKNOWN
    assert not judgement.resolved.draft_tokens.understood
    assert judged("--config options.yaml --k 2").resolved.draft_tokens.value == 2


def test_several_gpus_and_another_checkpoint_are_refused():
    def of(*positionals, flags=()):
        command = Command((), ("draftproof", "serve"), flags, positionals, StackKind.NATIVE)
        return broken(RULES.judge(own(), CHECKPOINT, Situation(), command))

    assert broken(judged("", situation=Situation(tensor_parallel=2))) == {"tensor-parallel"}
    assert of("elsewhere") == {"model-path"}
    assert of() == {"model-path", "options-together"}
    assert of(flags=(GivenFlag("--model-path", (CHECKPOINT.name,), 0),)) == set()


def test_bare_options_are_those_of_the_server(capsys):
    assert run(["verify", "tiny", "--stack", "native", "--args", "--k 2 --no-enable-prefix-caching"]) == 0
    assert "draftproof serve comes to an engine" in " ".join(capsys.readouterr().out.split())


def test_options_that_cannot_be_read_leave_the_command_open(changed):
    stack = changed("draftproof/cli/serve.py", "def serve(", "def produce(")
    report = check_launch(release("Qwen_Qwen3.5-9B"), stack, RULES)
    assert report.verdict is Verdict.UNKNOWN
    assert "looked for a function serve" in claims(report)["option-exists"].reason


def test_a_changed_check_of_the_server_changes_the_judgement(changed):
    stack = changed("draftproof/cli/server_engine.py", "window != draft_tokens + 1", "window != draft_tokens")
    assert broken(judged("--speculative-num-draft-tokens 3", stack=stack)) == set()
    assert broken(judged("--speculative-num-draft-tokens 4", stack=stack)) == {"options-together"}


def test_only_a_server_and_generate_can_be_judged():
    with pytest.raises(UsageError, match="starts no server"):
        parse_command("draftproof inspect tiny")
    assert build(["serve"]) is not None


COMMANDS = (
    "",
    "--k 2",
    "--drafter none",
    "--k 0",
    "--draft-policy fixed",
    "--device cuda --draft-policy fixed --simulate-accept-length 2.0",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_the_server_says_of_link_4_what_verify_says_of_its_command(words, monkeypatch):
    """Verdict, K and the claims of a command, against those of the engine that this command starts."""
    started = []
    monkeypatch.setattr(
        native_server, "serve_natively", lambda argument, engine, request: started.append(engine)
    )
    line = parse_command(f"draftproof serve {CHECKPOINT.name} {words}")
    run(["serve", *line.arguments])
    (engine,) = started
    ready = replace(
        READY,
        drafter_name=engine.drafter.value,
        draft_tokens=engine.window_rows - 1,
        draft_policy=engine.draft_policy.value,
        simulated_accept_length=engine.simulated_accept_length,
    )
    link = ServedLink(4, "launch", "", LinkState.NOT_RUN, "")
    live = with_live_links(ServedChain("", "", (link,)), ready, EngineStatus()).links[0]
    report = check_launch(CHECKPOINT, own(), RULES, command=line)
    assert (live.state is LinkState.DISPROVED) == (report.verdict is Verdict.DISPROVED)
    judged_claims = {item.claim for item in report.items}
    assert {claim.claim for claim in live.claims} - judged_claims <= {"Speculation is on."} | {
        "Drafts are taken only for batches in which they give more tokens a second."
    }
    if live.state is LinkState.LIVE:
        assert f"K={ready.draft_tokens}," in claims(report)["draft-tokens-in-force"].observed
