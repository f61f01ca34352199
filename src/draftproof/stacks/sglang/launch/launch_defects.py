"""Known defects of SGLang's handling of a launch command."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from draftproof.stacks.defect import Defect, DefectFinding, DefectLink, Harm
from draftproof.stacks.fact_store import remember
from draftproof.stacks.reading import Reading
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.launch import launch_defect_queries as asks
from draftproof.stacks.sglang.launch.given_values import GivenValues
from draftproof.stacks.sglang.launch.speculation_findings import TRIPLE
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree

_SETTLES_STATES = ("attention_backend", "mamba_radix_cache_strategy", "disable_radix_cache")
"""With one of these nothing is left to be chosen too early."""
_TRACK_INTERVAL = 256
"""Of SGLang where nothing is given."""
_ALL = ("0.5.9", "0.5.12", "0.5.23")


def _any(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    return True


def has_several_head_layers(checkpoint: ServedCheckpoint) -> bool:
    """Models whose heads have a layer for each step."""
    return checkpoint.architecture.startswith(("MiMoV2", "Step3p5", "Step3p7", "GigaChat35"))


def _several_layers(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    return has_several_head_layers(checkpoint)


def _quantised(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    return "quantization_config" in checkpoint.config or checkpoint.hf_quant_config is not None


def _recurrent(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Models with recurrent layers: those of the families whose shapes are known, or by their config."""
    text = checkpoint.config.get("text_config")
    section = text if isinstance(text, dict) else checkpoint.config
    return any(str(key).startswith("linear_num_") for key in section)


def _recurrent_on_datacentre(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    gpu = situation.gpu
    return _recurrent(checkpoint, situation) and gpu is not None and gpu.capability in (100, 103)


DEFECTS: tuple[Defect, ...] = (
    Defect(
        "sglang-nextn-is-not-eagle",
        DefectLink.LAUNCH,
        Harm.WEAKENS,
        "Rules for models with several MTP layers look for EAGLE before NEXTN becomes EAGLE",
        "none known",
        _ALL,
        "comparisons of the algorithm with EAGLE alone, in rules that run before the alias is resolved",
        asks.raw_comparison,
        _several_layers,
        "NEXTN uses one layer of the head again and again, where EAGLE uses all of them",
        "--speculative-algorithm EAGLE",
    ),
    Defect(
        "sglang-partial-triple",
        DefectLink.LAUNCH,
        Harm.WEAKENS,
        "Steps without branches and draft tokens end in an error that names no option",
        "none known",
        _ALL,
        "an assertion without text that branches and draft tokens are not given without steps",
        asks.partial_triple,
        _any,
        "TypeError or AssertionError without a word at the start",
        "give --speculative-num-steps, --speculative-eagle-topk and --speculative-num-draft-tokens together",
    ),
    Defect(
        "sglang-track-interval-bare-assert",
        DefectLink.LAUNCH,
        Harm.WEAKENS,
        "More draft tokens than the track interval end in an assertion without text",
        "none known",
        ("0.5.23",),
        "an assertion that compares mamba_track_interval with the draft tokens, without text",
        asks.bare_track_interval,
        _recurrent,
        "AssertionError without a word at the start",
        "--mamba-track-interval of at least the draft tokens",
    ),
    Defect(
        "sglang-overlap-lost-in-silence",
        DefectLink.LAUNCH,
        Harm.WEAKENS,
        "The state cache that a hybrid model falls back to switches the overlap schedule off without a word",
        "none known",
        ("0.5.23",),
        "no_buffer and disable_overlap_schedule decided together, with no line for the log",
        asks.silent_overlap_loss,
        _recurrent,
        "--linear-attn-backend other than triton costs the overlap schedule",
        "--linear-attn-backend triton, and look at disable_overlap_schedule in /server_info",
    ),
    Defect(
        "sglang-draft-unquant-ignored",
        DefectLink.LAUNCH,
        Harm.WEAKENS,
        "--speculative-draft-model-quantization unquant has no effect",
        "none known",
        _ALL,
        "unquant turned into None for the draft, from which the checkpoint's own method is detected again",
        asks.unquant_forgotten,
        _quantised,
        "the head is built with the checkpoint's quantization although the command says otherwise",
        "none; what the head is built in follows from the checkpoint",
    ),
    Defect(
        "sglang-admission-cut",
        DefectLink.LAUNCH,
        Harm.WEAKENS,
        "Speculation limits the requests that run at once where nobody gave a limit",
        "sgl-project/sglang#34290",
        _ALL,
        "max_running_requests set to a number where it is None, in the handling of speculation",
        asks.admission_cut,
        _any,
        "a server that took hundreds of requests at once takes 48",
        "--max-running-requests with the number that is wanted",
    ),
    Defect(
        "sglang-adaptive-budget",
        DefectLink.LAUNCH,
        Harm.WEAKENS,
        "With adaptive speculation the memory of recurrent states is planned for fewer drafts than are kept",
        "none known",
        ("0.5.23",),
        "budgets with speculative_num_draft_tokens, allocations with max_speculative_num_draft_tokens()",
        asks.adaptive_budget,
        _recurrent,
        "--speculative-adaptive can run out of memory under load",
        "leave --speculative-adaptive out, or lower --mem-fraction-static",
    ),
    Defect(
        "sglang-attention-before-branches",
        DefectLink.LAUNCH,
        Harm.WEAKENS,
        "The attention backend is chosen before the number of branches is",
        "none known",
        _ALL,
        "a test of speculative_eagle_topk beside the test for SM100 where trtllm_mha is chosen",
        asks.attention_before_branches,
        _recurrent_on_datacentre,
        "NEXTN alone gets another attention backend and page size than NEXTN with --speculative-eagle-topk 1",
        "give steps, branches and draft tokens explicitly, and --attention-backend with --page-size",
    ),
    Defect(
        "sglang-attention-before-states",
        DefectLink.LAUNCH,
        Harm.WEAKENS,
        "On SM100 the attention backend of hybrid models is chosen before the cache of their states is",
        "none known",
        ("0.5.23",),
        "a model's rule that asks for the state cache, carried out before the pass that decides it",
        asks.attention_before_states,
        _recurrent_on_datacentre,
        "without speculation the model gets triton with page 1, with NEXTN and branches trtllm_mha with "
        "page 64: a comparison compares two attention backends too",
        "--attention-backend and --page-size on both sides of a comparison",
    ),
)


def _is_partial(values: GivenValues) -> bool:
    given = [field for field in TRIPLE if values.given(field)]
    return 0 < len(given) < len(TRIPLE)


def _exceeds_interval(values: GivenValues) -> bool:
    tokens, interval = values.number("speculative_num_draft_tokens"), values.number("mamba_track_interval")
    return tokens is not None and tokens > (interval or _TRACK_INTERVAL)


_CONCERNED: Mapping[str, Callable[[GivenValues], bool]] = {
    "sglang-nextn-is-not-eagle": lambda values: (
        (values.text("speculative_algorithm") or "").upper() == "NEXTN"
    ),
    "sglang-partial-triple": _is_partial,
    "sglang-track-interval-bare-assert": _exceeds_interval,
    "sglang-overlap-lost-in-silence": lambda values: (
        values.text("linear_attn_backend") not in (None, "triton")
    ),
    "sglang-draft-unquant-ignored": lambda values: (
        values.text("speculative_draft_model_quantization") == "unquant"
    ),
    "sglang-admission-cut": lambda values: not values.given("max_running_requests"),
    "sglang-adaptive-budget": lambda values: values.values.get("speculative_adaptive") is True,
    "sglang-attention-before-branches": lambda values: not values.given("speculative_eagle_topk"),
    "sglang-attention-before-states": lambda values: (
        not any(values.given(field) for field in (*_SETTLES_STATES, "speculative_algorithm"))
    ),
}
"""Which commands a defect concerns."""


def concerned(values: GivenValues) -> tuple[str, ...]:
    """The defects that a command can run into, by name."""
    return tuple(name for name, concerns in _CONCERNED.items() if concerns(values))


@dataclass(frozen=True)
class _Present:
    """What the queries saw, in the order of the table."""

    readings: tuple[Reading[bool], ...]


def launch_defects(
    tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation, names: Collection[str]
) -> tuple[DefectFinding, ...]:
    """Each known defect of launching: whether this source has it, and whether it matters here.

    Args:
        tree: the source.
        checkpoint: the model.
        situation: the deployment.
        names: the defects that the command can run into: `concerned`.
    """
    present = remember(
        tree, "sglang-launch-defects", lambda view: _Present(tuple(d.query(view) for d in DEFECTS)), _Present
    )
    return tuple(
        DefectFinding(defect, reading, defect.identifier in names and defect.applies(checkpoint, situation))
        for defect, reading in zip(DEFECTS, present.readings, strict=True)
    )
