"""What to generate: sizes and layout of a tiny random checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from draftproof.architecture.spec import ExpertLayout
from tests.support.checkpoint_precision import BF16, ModuleGroup, Precision


class Family(Enum):
    """Which family, hence which names and which shape of config.json."""

    QWEN3_5 = "qwen3_5"
    """`Qwen3_5[Moe]ForConditionalGeneration`: nested config, `model.language_model.*`."""
    QWEN3_5_TEXT = "qwen3_5_text"
    """`Qwen3_5[Moe]ForCausalLM`: flat config, `model.*`, no vision tower."""
    QWEN3_NEXT = "qwen3_next"
    """`Qwen3NextForCausalLM`: flat config without any MTP field, fused GDN projections, always MoE."""


@dataclass(frozen=True)
class Sizes:
    """Dimensions, chosen so that no matrix is square and a transposed or swapped one cannot fit."""

    hidden: int = 64
    vocab: int = 320
    layers: int = 4
    full_attention_interval: int = 4
    heads: int = 6
    key_value_heads: int = 2
    head_dim: int = 16
    partial_rotary_factor: float = 0.5
    intermediate: int = 112
    experts: int = 8
    experts_per_token: int = 2
    expert_intermediate: int = 48
    shared_intermediate: int = 80
    linear_key_heads: int = 2
    linear_value_heads: int = 6
    linear_key_head_dim: int = 16
    linear_value_head_dim: int = 32
    conv_kernel: int = 4
    vision_depth: int = 1
    vision_hidden: int = 32
    vision_intermediate: int = 56
    vision_heads: int = 2
    vision_patch: int = 4
    vision_positions: int = 16

    @property
    def layer_types(self) -> tuple[str, ...]:
        """The config's name of every layer's mixer: full attention where (i + 1) % interval is 0."""
        return tuple(
            "linear_attention" if (index + 1) % self.full_attention_interval else "full_attention"
            for index in range(self.layers)
        )

    @property
    def linear_key_dim(self) -> int:
        """Width of all GDN keys."""
        return self.linear_key_heads * self.linear_key_head_dim

    @property
    def linear_value_dim(self) -> int:
        """Width of all GDN values."""
        return self.linear_value_heads * self.linear_value_head_dim


@dataclass(frozen=True)
class CheckpointOptions:
    """One checkpoint. Equal seed and sizes give equal logical weights in every layout and precision.

    Attributes:
        family: names and config shape.
        moe: routed experts with a shared one instead of a dense MLP (always so for Qwen3-Next).
        sizes: dimensions.
        precision: recipe of the trunk, and of the head unless `mtp_precision` is given.
        mtp_precision: recipe whose MTP encodings are used for the head.
        mtp: write the MTP head and declare it (Qwen3-Next declares nothing).
        trunk_experts: None takes what releases do: fused in BF16 Qwen3.5, per expert otherwise.
        mtp_experts: None takes per expert.
        tied: lm_head is the embedding; no `lm_head.weight` is written.
        vision: write a vision tower (only QWEN3_5 has one).
        recurrent_float32: A_log and linear_attn.norm in float32, as in the 9B; otherwise in the base dtype.
        shared_scales: members of a fused group (q/k/v, gate/up) share the NVFP4 global scale.
        scale_inv_dtype: torch dtype name of block FP8 scales.
        kv_scales: write k_scale and v_scale beside the trunk's k_proj and v_proj.
        shards: number of weight files; above 1 an index is written.
        index: write an index even for a single file.
        tokenizer: write tokenizer.json, tokenizer_config.json and a chat template.
        generation_config: write generation_config.json with its own end tokens.
        seed: of the weights.
    """

    family: Family = Family.QWEN3_5
    moe: bool = False
    sizes: Sizes = Sizes()
    precision: Precision = BF16
    mtp_precision: Precision | None = None
    mtp: bool = True
    trunk_experts: ExpertLayout | None = None
    mtp_experts: ExpertLayout | None = None
    tied: bool = False
    vision: bool = True
    recurrent_float32: bool = True
    shared_scales: bool = True
    scale_inv_dtype: str = "bfloat16"
    kv_scales: bool = False
    shards: int = 1
    index: bool = False
    tokenizer: bool = False
    generation_config: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.family is Family.QWEN3_NEXT and not self.moe:
            raise ValueError("Qwen3-Next is always a mixture of experts: pass moe=True")
        if self.tied and self.recipe.quantizes(ModuleGroup.HEAD):
            raise ValueError("a tied lm_head has no tensor to quantize")
        for layout, group in (
            (self.trunk_layout, ModuleGroup.EXPERTS),
            (self.mtp_layout, ModuleGroup.MTP_EXPERTS),
        ):
            if layout is ExpertLayout.FUSED and self.recipe.quantizes(group):
                raise ValueError(f"{self.recipe.name} stores {group.value} per expert, not fused")

    @property
    def recipe(self) -> Precision:
        """The precision of trunk and head together."""
        return self.precision.with_mtp_of(self.mtp_precision) if self.mtp_precision else self.precision

    @property
    def trunk_layout(self) -> ExpertLayout:
        """How the trunk's experts lie on disk."""
        if not self.moe:
            return ExpertLayout.NONE
        if self.trunk_experts is not None:
            return self.trunk_experts
        fused = self.family is not Family.QWEN3_NEXT and not self.recipe.quantizes(ModuleGroup.EXPERTS)
        return ExpertLayout.FUSED if fused else ExpertLayout.PER_EXPERT

    @property
    def mtp_layout(self) -> ExpertLayout:
        """How the head's experts lie on disk."""
        if not self.moe:
            return ExpertLayout.NONE
        return self.mtp_experts or ExpertLayout.PER_EXPERT

    def keeps_float32(self, name: str) -> bool:
        """True for the recurrent parameters that some releases store in float32 beside BF16 weights."""
        return self.recurrent_float32 and name.endswith((".A_log", ".linear_attn.norm.weight"))

    @property
    def text_prefix(self) -> str:
        """Prefix of the trunk's tensors."""
        return "model.language_model." if self.family is Family.QWEN3_5 else "model."

    @property
    def has_vision(self) -> bool:
        """True when the tower's tensors are written."""
        return self.vision and self.family is Family.QWEN3_5
