"""A kept answer serves the same question only: whatever an answer depends on is part of its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pytest

from draftproof.hardware.gpu_table import GPUS
from draftproof.stacks import served_weights as weights_module
from draftproof.stacks.command.command import Command
from draftproof.stacks.known import rules_for
from draftproof.stacks.launch_facts import LaunchJudgement, ResolvedLaunch
from draftproof.stacks.reading import found
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.served_weights import served_weights
from draftproof.stacks.sglang.backend import backends as sglang_backends
from draftproof.stacks.sglang.code import head_support as sglang_head
from draftproof.stacks.sglang.launch import judgement as sglang_judgement
from draftproof.stacks.sglang.launch import plan as sglang_plan
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Distribution, Stack, StackKind
from draftproof.stacks.vllm.backend import backends as vllm_backends
from draftproof.stacks.vllm.code import head_support as vllm_head
from draftproof.stacks.vllm.launch import launch_judge as vllm_judge
from draftproof.stacks.vllm.launch import launch_plan as vllm_plan
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release

KEEPERS = (
    sglang_backends, sglang_head, sglang_judgement, sglang_plan,
    vllm_backends, vllm_head, vllm_judge, vllm_plan,
)  # fmt: skip
ANY_STACK = pytest.mark.parametrize("kind", [StackKind.SGLANG, StackKind.VLLM])


@dataclass(frozen=True)
class Question:
    """Everything that a stack's rules are asked with."""

    stack: Stack
    checkpoint: ServedCheckpoint
    situation: Situation
    words: tuple[str, ...] = ()
    in_force: str = "auto"


class Asked(Exception):
    """Carries the name that an answer would be kept under."""


def _name_of(ask: Callable[[], object]) -> str:
    with pytest.raises(Asked) as caught:
        ask()
    return str(caught.value)


def _head(question: Question) -> str:
    rules = rules_for(question.stack.kind)
    return _name_of(lambda: rules.head_support(question.stack, question.checkpoint, question.situation))


def _plan(question: Question) -> str:
    rules = rules_for(question.stack.kind)
    return _name_of(lambda: rules.plan(question.stack, question.checkpoint, question.situation))


def _judge(question: Question) -> str:
    rules = rules_for(question.stack.kind)
    command = Command((), ("serve",), (), question.words)
    return _name_of(lambda: rules.judge(question.stack, question.checkpoint, question.situation, command))


def _backends(question: Question) -> str:
    rules = rules_for(question.stack.kind)
    options = (("--attention-backend", question.in_force, "given"),)
    resolved = ResolvedLaunch(found("EAGLE", ""), found(3, ""), found("", ""), options)
    judgement = LaunchJudgement((), resolved)
    return _name_of(
        lambda: rules.backends(question.stack, question.checkpoint, question.situation, judgement)
    )


def _with_config(question: Question) -> Question:
    config = {**question.checkpoint.config, "something_new": 1}
    return replace(question, checkpoint=replace(question.checkpoint, config=config))


def _with_quantisation(question: Question) -> Question:
    changed = replace(question.checkpoint, hf_quant_config={"quantization": {"quant_algo": "FP8"}})
    return replace(question, checkpoint=changed)


def _with_head(question: Question) -> Question:
    head = {name: replace(tensor, dtype="F8_E5M2") for name, tensor in question.checkpoint.head.items()}
    return replace(question, checkpoint=replace(question.checkpoint, head=head))


def _with_name(question: Question) -> Question:
    return replace(question, checkpoint=replace(question.checkpoint, name="elsewhere"))


def _with_gpu(question: Question) -> Question:
    gpu = next(gpu for gpu in GPUS if gpu.capability == 90)
    return replace(question, situation=replace(question.situation, gpu=gpu))


def _with_ranks(question: Question) -> Question:
    return replace(question, situation=replace(question.situation, tensor_parallel=2))


def _with_drafts(question: Question) -> Question:
    return replace(question, situation=replace(question.situation, draft_tokens=5))


def _with_context(question: Question) -> Question:
    return replace(question, situation=replace(question.situation, context=1024))


def _with_words(question: Question) -> Question:
    return replace(question, words=("--port", "1"))


def _with_option(question: Question) -> Question:
    return replace(question, in_force="triton")


def _with_package(question: Question) -> Question:
    beside = (Distribution("flashinfer-python", "0.0.1"),)
    return replace(question, stack=replace(question.stack, beside=beside))


ASKED: dict[str, Callable[[Question], str]] = {
    "head": _head, "plan": _plan, "judge": _judge, "backends": _backends,
}  # fmt: skip
DEPENDS_ON: dict[str, tuple[Callable[[Question], Question], ...]] = {
    "head": (_with_config, _with_quantisation, _with_head, _with_gpu),
    "plan": (
        _with_config, _with_quantisation, _with_name, _with_gpu, _with_ranks, _with_drafts, _with_context,
    ),
    "judge": (
        _with_config, _with_quantisation, _with_name, _with_gpu, _with_ranks, _with_drafts, _with_context,
        _with_words,
    ),
    "backends": (
        _with_config, _with_quantisation, _with_gpu, _with_ranks, _with_drafts, _with_context, _with_option,
        _with_package,
    ),
}  # fmt: skip


@pytest.fixture
def question(kind: StackKind, monkeypatch: pytest.MonkeyPatch) -> Question:
    """The first question; nothing is computed for it, only its name is made."""

    def asked(tree: object, name: str, *rest: Any) -> NoReturn:
        raise Asked(name)

    for keeper in KEEPERS:
        monkeypatch.setattr(keeper, "remember", asked)
    version = "0.5.23" if kind is StackKind.SGLANG else "0.33.0"
    gpu = next(gpu for gpu in GPUS if gpu.capability == 120)
    # Defects have entries of their own, whose names hold nothing since they depend on the source alone.
    monkeypatch.setattr(vllm_backends, "backend_defects", lambda *given: ())
    checkpoint = served_release("nvidia_Qwen3.5-397B-A17B-NVFP4")
    return Question(real_stack(kind.value, version), checkpoint, Situation(gpu, 8))


@ANY_STACK
@pytest.mark.parametrize("asked", ASKED)
def test_everything_that_an_answer_depends_on_is_in_its_name(asked: str, question: Question) -> None:
    first = ASKED[asked](question)
    forgotten = [change.__name__ for change in DEPENDS_ON[asked] if ASKED[asked](change(question)) == first]
    assert not forgotten


@ANY_STACK
@pytest.mark.parametrize("asked", ASKED)
def test_the_same_question_has_the_same_name(asked: str, question: Question) -> None:
    assert ASKED[asked](question) == ASKED[asked](replace(question))


def test_the_tensors_of_a_checkpoint_are_weighed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = replace(served_release("Qwen_Qwen3.5-0.8B"))
    first = served_weights(checkpoint)
    monkeypatch.delattr(weights_module, "weigh_served")
    assert served_weights(checkpoint) is first
    assert first is not None
