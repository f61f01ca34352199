"""The engine behind `draftproof serve`, from the command's options: every spelling has its meaning, and those
that contradict each other are refused.

Link 4 of our own engine carries `engine_config` out on a command that is to be judged
(`stacks.native.settled`), so it asks for nothing but what it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.engine.config import ComputeType, DrafterName, DraftPolicy, EngineConfig
from draftproof.errors import UsageError
from draftproof.models.weight_storage import WeightStorage
from draftproof.speculation.draft_vocabulary import FREQUENT

DEFAULT_DRAFTS = 3
SNAPSHOTS_PER_SEQUENCE = 4
OWN_HEAD_METHODS = ("mtp", "nextn", "qwen3_5_mtp", "qwen3_next_mtp")
"""What vLLM's versions call drafting with the checkpoint's own head."""
METHOD, DRAFTS = "method", "num_speculative_tokens"


@dataclass(frozen=True)
class EngineOptions:
    """Options about the engine, as they were given.

    Attributes:
        drafter: what proposes tokens.
        draft_tokens: K; None when not given.
        speculative_config: vLLM's object for drafter and K; None when not given.
        window_tokens: SGLang's count of the drafts and the token before them; None when not given.
        drafts_per_position: SGLang's width of a tree of drafts; None when not given.
        draft_policy: who decides how many drafts a window gets.
        draft_vocabulary: what drafts are chosen among.
        max_sequences: sequences that run at a time; None when not given.
        max_length: longest prompt and output together; None when not given.
        max_total_tokens: positions of all together; None when not given.
        prefix_snapshots: states kept for prompts that begin alike; None when not given.
        keeps_prefixes: vLLM's word for keeping any; None when not given.
        drops_prefixes: vLLM's and SGLang's words for keeping none; None when not given.
        memory_share: of a GPU's memory; None when not given.
        prompt_chunk: most prompt rows of one step.
        compute_type: of activations and dense weights; None when not given.
        weight_storage: how quantised weights are kept.
        device: a torch device name.
        threads: CPU threads; None when not given.
        simulated_accept_length: tokens per verify pass that are made up; None when not given.
    """

    drafter: DrafterName = DrafterName.NEXTN
    draft_tokens: int | None = None
    speculative_config: Mapping[str, object] | None = None
    window_tokens: int | None = None
    drafts_per_position: int | None = None
    draft_policy: DraftPolicy = DraftPolicy.ADAPTIVE
    draft_vocabulary: str = FREQUENT
    max_sequences: int | None = None
    max_length: int | None = None
    max_total_tokens: int | None = None
    prefix_snapshots: int | None = None
    keeps_prefixes: bool | None = None
    drops_prefixes: bool | None = None
    memory_share: float | None = None
    prompt_chunk: int = 256
    compute_type: ComputeType | None = None
    weight_storage: WeightStorage = WeightStorage.DENSE
    device: str = "cpu"
    threads: int | None = None
    simulated_accept_length: float | None = None


def engine_config(options: EngineOptions) -> EngineConfig:
    """The engine that the options ask for.

    Raises:
        UsageError: a value that cannot be, or two options that contradict each other.
    """
    draft_tokens = _draft_tokens(options)
    sequences = EngineConfig.max_sequences if options.max_sequences is None else options.max_sequences
    return EngineConfig(
        drafter=DrafterName.NONE if draft_tokens == 0 else options.drafter,
        draft_tokens=draft_tokens,
        draft_policy=options.draft_policy,
        draft_vocabulary=options.draft_vocabulary,
        max_sequences=sequences,
        max_length=options.max_length,
        max_total_tokens=options.max_total_tokens,
        prefix_snapshots=_prefix_snapshots(options, sequences),
        memory_share=options.memory_share,
        prompt_chunk=options.prompt_chunk,
        compute_type=options.compute_type,
        weight_storage=options.weight_storage,
        device=options.device,
        threads=options.threads,
        simulated_accept_length=options.simulated_accept_length,
    )


def _draft_tokens(options: EngineOptions) -> int:
    """K, in whichever spelling."""
    asked = _asked_of_vllm(options.speculative_config)
    if options.speculative_config is not None and options.drafter is DrafterName.NONE:
        raise UsageError("--speculative-config asks for drafts and --drafter none for none", _ONE_OF_THEM)
    if asked is not None and options.draft_tokens is not None and options.draft_tokens != asked:
        raise UsageError(
            f"--speculative-config asks for {asked} drafts a pass and --k for {options.draft_tokens}",
            _ONE_OF_THEM,
        )
    count = asked if options.draft_tokens is None else options.draft_tokens
    count = DEFAULT_DRAFTS if count is None else count
    _require_chain(options, count)
    return count


_ONE_OF_THEM = "Leave one of them out."


def _asked_of_vllm(given: Mapping[str, object] | None) -> int | None:
    """Drafts that vLLM's object asks for; None when there is none, or it leaves their number open."""
    if given is None:
        return None
    unknown = sorted(key for key in given if key not in (METHOD, DRAFTS))
    if unknown:
        raise UsageError(
            f"--speculative-config has the key {unknown[0]!r}, which this server does not carry out",
            f"It takes {METHOD!r} and {DRAFTS!r}.",
        )
    method = given.get(METHOD, OWN_HEAD_METHODS[0])
    if method not in OWN_HEAD_METHODS:
        raise UsageError(
            f"--speculative-config asks for the method {method!r}, and this server drafts with the "
            "checkpoint's own MTP head",
            f'Write {{"{METHOD}": "{OWN_HEAD_METHODS[0]}"}}.',
        )
    count = given.get(DRAFTS)
    if DRAFTS not in given:
        return None
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(
            f"{DRAFTS!r} of --speculative-config is {count!r}",
            "Give a whole number from 1 on, or leave the option out and say --k 0 for plain decoding.",
        )
    return count


def _require_chain(options: EngineOptions, draft_tokens: int) -> None:
    """SGLang's further numbers are taken when they describe a chain of K drafts, the only form there is."""
    width, window = options.drafts_per_position, options.window_tokens
    if width is not None and width != 1:
        raise UsageError(
            f"--speculative-eagle-topk {width} asks for a tree of drafts, and this server drafts one token "
            "for each position",
            "Leave it out, or say 1.",
        )
    if window is not None and window != draft_tokens + 1:
        raise UsageError(
            f"--speculative-num-draft-tokens {window} counts {window - 1} drafts and the token before them, "
            f"and K is {draft_tokens}",
            f"Say --speculative-num-draft-tokens {draft_tokens + 1} or --k {window - 1}, or leave it out.",
        )


def _prefix_snapshots(options: EngineOptions, sequences: int) -> int:
    """Kept prompts; when nobody says how many, what a few conversations for each sequence need."""
    keeps, drops = options.keeps_prefixes, options.drops_prefixes
    asked = options.prefix_snapshots
    is_on = bool(keeps) or drops is False
    is_off = bool(drops) or keeps is False
    if is_on and is_off:
        raise UsageError(
            "--enable-prefix-caching and --no-enable-prefix-caching are both given", _ONE_OF_THEM
        )
    if is_off and asked:
        raise UsageError(f"--no-enable-prefix-caching and --prefix-snapshots {asked} disagree", _ONE_OF_THEM)
    if is_on and asked == 0:
        raise UsageError("--enable-prefix-caching and --prefix-snapshots 0 disagree", _ONE_OF_THEM)
    if is_off:
        return 0
    return SNAPSHOTS_PER_SEQUENCE * sequences if asked is None else asked
