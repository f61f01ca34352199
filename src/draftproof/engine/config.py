"""Everything that can be chosen about an engine, in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from draftproof.device.shapes import BUCKETS, MAX_DEVICE_DRAFTS
from draftproof.errors import UsageError
from draftproof.models.weight_storage import WeightStorage
from draftproof.speculation.draft_vocabulary import FREQUENT

MAX_DRAFT_TOKENS = 16
"""Most drafts of one window: beyond it a chained head's drafts are almost never accepted."""
MAX_THREADS = 1024
"""Most CPU threads: torch crashes when the system refuses to start as many as were asked for."""


class DrafterName(Enum):
    """What can propose tokens."""

    NONE = "none"
    NEXTN = "nextn"


class DraftPolicy(Enum):
    """Who decides how many drafts a window gets."""

    FIXED = "fixed"
    """K drafts, always."""
    ADAPTIVE = "adaptive"
    """As many, up to K, as give the most tokens a second: step costs are measured at the start, and
    acceptance is watched."""


class ComputeType(Enum):
    """Precision of activations and dense weights."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True)
class EngineConfig:
    """How an engine runs.

    Attributes:
        drafter: what proposes tokens.
        draft_tokens: most drafts of one window (K); 0 is plain decoding.
        draft_policy: who decides how many of them a window gets.
        draft_vocabulary: what drafts are chosen among on a GPU: "frequent" tokens, "all", how many of the
            frequent ones, or a file that names them. On a CPU it is all, whatever "frequent" may say.
        max_sequences: sequences that run at a time.
        max_length: longest prompt and output together; None for what the checkpoint allows, at most 32,768.
        max_total_tokens: positions of all sequences and kept prompts together; None for as many as all
            sequences at their longest take.
        prefix_snapshots: recurrent states that are kept so that prompts which begin alike are not computed
            again; 0 for none.
        memory_share: most of a GPU's memory that the engine takes, above 0 and at most 1; None for all that
            is free.
        page_size: positions of one page of keys and values.
        prompt_chunk: most prompt rows of one step.
        compute_type: precision of activations and dense weights; None for the device's own: float32 on a CPU,
            bfloat16 on a GPU.
        weight_storage: how quantised weights are kept.
        device: a torch device name.
        threads: CPU threads; None decides from the model's size.
        simulated_accept_length: tokens per verify pass that are made up, to time a GPU; the text means
            nothing then. None lets the model judge the drafts, as it must.
    """

    drafter: DrafterName = DrafterName.NEXTN
    draft_tokens: int = 3
    draft_policy: DraftPolicy = DraftPolicy.FIXED
    draft_vocabulary: str = FREQUENT
    max_sequences: int = 8
    max_length: int | None = None
    max_total_tokens: int | None = None
    prefix_snapshots: int = 0
    memory_share: float | None = None
    page_size: int = 16
    prompt_chunk: int = 256
    compute_type: ComputeType | None = None
    weight_storage: WeightStorage = WeightStorage.DENSE
    device: str = "cpu"
    threads: int | None = None
    simulated_accept_length: float | None = None

    def __post_init__(self) -> None:
        lowest = 0 if self.drafter is DrafterName.NONE else 1
        if not lowest <= self.draft_tokens <= MAX_DRAFT_TOKENS:
            raise UsageError(
                f"draft tokens (K) must be from 1 to {MAX_DRAFT_TOKENS}, not {self.draft_tokens}",
                "For plain decoding choose the drafter 'none'.",
            )
        if self.uses_device_steps:
            self._check_device_steps()
        elif self.draft_vocabulary != FREQUENT:
            raise UsageError(
                "a draft vocabulary makes drafts cheaper on a GPU; on a CPU there is none",
                "Leave --draft-vocabulary out, or use --device cuda.",
            )
        for name in ("max_sequences", "page_size", "prompt_chunk"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.prefix_snapshots < 0:
            raise UsageError(f"prefix_snapshots must be 0 or more, not {self.prefix_snapshots}")
        if self.max_total_tokens is not None and self.max_total_tokens < 1:
            raise UsageError(f"max_total_tokens must be at least 1, not {self.max_total_tokens}")
        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise UsageError(f"threads must be from 1 to {MAX_THREADS}, not {self.threads}")
        if self.max_length is not None and self.max_length < 2:
            raise UsageError(f"max_length must be at least 2, not {self.max_length}")
        if self.memory_share is not None:
            self._check_memory_share(self.memory_share)
        if self.simulated_accept_length is not None:
            self._check_simulation(self.simulated_accept_length)

    @property
    def uses_device_steps(self) -> bool:
        """Whether steps are programs of GPU kernels."""
        return self.device.startswith("cuda")

    @property
    def activations(self) -> ComputeType:
        """Precision in force."""
        if self.compute_type is not None:
            return self.compute_type
        return ComputeType.BFLOAT16 if self.uses_device_steps else ComputeType.FLOAT32

    @property
    def simulated_drafts(self) -> int | None:
        """Drafts of a window that are accepted unjudged, in thousandths; None without simulation."""
        length = self.simulated_accept_length
        return None if length is None else round((length - 1.0) * 1000)

    def _check_memory_share(self, share: float) -> None:
        if not self.uses_device_steps:
            raise UsageError(
                f"a share of {share:g} is one of a GPU's memory, and the device is {self.device}",
                "Add --device cuda, or leave --gpu-memory-utilization out.",
            )
        if not 0.0 < share <= 1.0:
            raise UsageError(f"the share of a GPU's memory must be above 0 and at most 1, not {share:g}")

    def _check_simulation(self, accept_length: float) -> None:
        if not self.uses_device_steps or self.draft_policy is not DraftPolicy.FIXED:
            raise UsageError(
                "acceptance is simulated on a GPU and with always the same number of drafts only",
                "Add --device cuda and --draft-policy fixed.",
            )
        if not 1.0 <= accept_length <= self.window_rows:
            raise UsageError(
                f"a simulated accept length of {accept_length:g}: a verify pass of this engine gives from 1 "
                f"to {self.window_rows} tokens"
            )

    def _check_device_steps(self) -> None:
        if self.activations is not ComputeType.BFLOAT16:
            raise UsageError(
                f"GPU kernels compute in bfloat16, not in {self.activations.value}",
                "Leave --dtype out, or use --device cpu.",
            )
        if self.draft_tokens > MAX_DEVICE_DRAFTS:
            raise UsageError(
                f"draft tokens (K) on a GPU are at most {MAX_DEVICE_DRAFTS}, not {self.draft_tokens}",
                "Lower --k, or use --device cpu.",
            )
        if self.max_sequences > BUCKETS[-1]:
            raise UsageError(f"max_sequences on a GPU is at most {BUCKETS[-1]}, not {self.max_sequences}")

    @property
    def window_rows(self) -> int:
        """Rows of the largest verify window."""
        return (self.draft_tokens if self.drafter is not DrafterName.NONE else 0) + 1
