"""Commands put together at random: what is judged to be wrong is what the command line refuses."""

import json
import random
import shlex

import pytest

from draftproof.cli.main import run
from draftproof.stacks.command.command import Command, Variable
from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.launch_facts import Ruling
from draftproof.stacks.situation import Situation
from tests.support.own_stack import RULES, own, release

CHECKPOINT = release("Qwen_Qwen3.5-9B")
WORDS = (
    *("--k 0", "--k 3", "--k=8", "--draft-tokens 16", "--k 17", "--drafter none", "--drafter Nextn"),
    *("--draft-policy fixed", "--draft-policy FIXED", "--device cuda", "--device cuda:1", "--dtype float32"),
    *("--weights packed", "--max-num-seqs 64", "--max-num-seqs 65", "--max-running-requests 0"),
    *(
        "--max-length 1",
        "--context 7",
        "--max-total-tokens 99",
        "--prefix-snapshots 0",
        "--prefix-snapshots 5",
    ),
    *("--enable-prefix-caching", "--no-enable-prefix-caching", "--disable-radix-cache", "--threads 0"),
    *("--gpu-memory-utilization 0.9", "--mem-fraction-static 90", "--mem-fraction-static nan"),
    *("--speculative-config {}", "--speculative-config '{\"num_speculative_tokens\": 3}'"),
    *("--speculative-config '{\"method\": []}'", "--speculative-num-draft-tokens 4"),
    *("--speculative-eagle-topk 1", "--speculative-eagle-topk 8", "--simulate-accept-length 2"),
    *("--draft-vocabulary all", "--port 0", "--port 65536", "--api-key a", "--api-key b", "--host ::1"),
    *("--stall-seconds 0", "--stall-seconds inf", "--max-queue -1", "--metrics-compat vllm"),
    *("--log-format JSON", "--reasoning-parser qwen3", "--tool-call-parser x", "--model z", "--tp 1"),
    *("--kv-dtype auto", "--stack native", "--stack x", "extra", "--bogus", "-x"),
)
VARIABLES = (
    *(("K", "2"), ("DRAFT_TOKENS", "1"), ("MAX_NUM_SEQS", "4"), ("ENABLE_PREFIX_CACHING", "false")),
    *(
        ("ENABLE_PREFIX_CACHING", "2"),
        ("API_KEY", "a b"),
        ("DEVICE", "cuda"),
        ("PORT", "tcp://1"),
        ("PORT", ""),
    ),
)


@pytest.mark.parametrize("seed", range(40))
def test_the_judgement_of_a_command_is_what_the_command_line_does(seed, monkeypatch, capsys):
    chosen = random.Random(seed)
    words = " ".join(chosen.sample(WORDS, chosen.randint(0, 4)))
    variables = [Variable(f"DRAFTPROOF_SERVE_{name}", value) for name, value in chosen.sample(VARIABLES, 1)]
    line = f"draftproof serve {CHECKPOINT.name} {words}"
    command = parse_command(line)
    command = Command(tuple(variables), command.program, command.flags, command.positionals, command.stack)
    judgement = RULES.judge(own(), CHECKPOINT, Situation(), command)
    refused = [
        finding.observed
        for finding in judgement.findings
        if finding.ruling is Ruling.BREAKS and finding.check.startswith(("option", "starts"))
    ]
    assert not any(finding.ruling is Ruling.UNKNOWN for finding in judgement.findings)
    for variable in variables:
        monkeypatch.setenv(variable.name, variable.value)
    code = run([*shlex.split(line)[1:], "--dry-run", "--json"])
    shown = capsys.readouterr()
    assert bool(refused) == (code != 0), (variables, line, shown.err, refused)
    if code == 0:
        settings = json.loads(shown.out)
        assert judgement.resolved.draft_tokens.value == settings["draft_tokens"]
        assert judgement.resolved.algorithm.is_found == (settings["drafter"] == "nextn")
