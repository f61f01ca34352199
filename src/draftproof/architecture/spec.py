"""What a supported model is made of, as frozen data: the one meaning of a config file.

Everything that loads, plans, counts or runs a model reads these classes, never the JSON. Sizes are element
counts; nothing here knows about precision (that is read from the tensors on disk, `checkpoint.precision`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class RotarySpec:
    """Rotary position embedding.

    Attributes:
        theta: base of the frequencies.
        dimensions: leading dimensions of each head that rotate (head_dim * partial_rotary_factor).
        scaling: `rope_type` of the config: "default", "linear", "yarn", ...
        factor: context extension factor (1.0 without scaling).
        original_max_position: native context of a scaled model; None without scaling.
        beta_fast: YaRN's fast boundary.
        beta_slow: YaRN's slow boundary.
        attention_factor: YaRN's scale of cos and sin; None derives it from `factor`.
        mrope_section: dimensions per axis of multimodal rotary embedding. Text positions are equal on all
            axes, so text needs no special treatment; kept for the report.
    """

    theta: float
    dimensions: int
    scaling: str = "default"
    factor: float = 1.0
    original_max_position: int | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mrope_section: tuple[int, ...] | None = None


@dataclass(frozen=True)
class AttentionSpec:
    """Full attention with grouped key/value heads and, in this family, an output gate.

    `gated` doubles q_proj: rows are (query | gate) interleaved per head, view (heads, 2, head_dim).
    """

    num_heads: int
    num_key_value_heads: int
    head_dim: int
    gated: bool
    bias: bool = False


@dataclass(frozen=True)
class GatedDeltaNetSpec:
    """Gated DeltaNet linear attention.

    `fused_projections` is the Qwen3-Next layout on disk (`in_proj_qkvz`, `in_proj_ba`, interleaved per key
    head); otherwise `in_proj_qkv`, `in_proj_z`, `in_proj_a`, `in_proj_b`.
    """

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    fused_projections: bool = False

    @property
    def key_dim(self) -> int:
        """Width of all keys (and of all queries)."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_dim(self) -> int:
        """Width of all values."""
        return self.num_value_heads * self.value_head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the causal convolution: queries, keys and values."""
        return 2 * self.key_dim + self.value_dim


@dataclass(frozen=True)
class DenseMlpSpec:
    """Gated MLP: down(silu(gate(x)) * up(x))."""

    intermediate_size: int


@dataclass(frozen=True)
class MoeSpec:
    """Routed experts plus one gated shared expert (0 = no shared expert)."""

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    shared_intermediate_size: int
    normalize_top_k: bool = True


@dataclass(frozen=True)
class LayerSpec:
    """One decoder layer: norm, mixer, residual, norm, mlp, residual."""

    mixer: AttentionSpec | GatedDeltaNetSpec
    mlp: DenseMlpSpec | MoeSpec


class ExpertLayout(Enum):
    """How routed experts lie on disk; read from tensor names, trunk and MTP head separately."""

    NONE = "none"
    """Dense model: no routed experts."""
    FUSED = "fused"
    """`experts.gate_up_proj [E, 2I, h]` and `experts.down_proj [E, h, I]`, no `.weight`."""
    PER_EXPERT = "per_expert"
    """`experts.{e}.{gate,up,down}_proj.weight`."""
    STACKED = "stacked"
    """MLX: `switch_mlp.{gate,up,down}_proj.weight [E, ...]`; recognised, not loaded."""


@dataclass(frozen=True)
class MtpSpec:
    """The multi-token-prediction head: fc over [embedding, hidden], then full-attention layers.

    Attributes:
        num_layers: layers of the head (1 in every released model).
        layer: what each of them is made of.
        declared_at: JSON path of the config field that declares the head; None when the config is silent
            (Qwen3-Next), so that only the tensors can tell whether there is one.
        dedicated_embeddings: True when the head has its own embedding instead of the target's.
    """

    num_layers: int
    layer: LayerSpec
    declared_at: str | None
    dedicated_embeddings: bool = False


@dataclass(frozen=True)
class VisionSpec:
    """The vision tower, known only well enough to account for its tensors."""

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    in_channels: int
    patch_size: int
    temporal_patch_size: int
    spatial_merge_size: int
    num_position_embeddings: int
    out_hidden_size: int


@dataclass(frozen=True)
class ModelSpec:
    """A whole checkpoint of a family that the engine can run.

    Attributes:
        family: key of the family table (`architecture.registry`).
        architecture: the config's `architectures[0]`.
        model_type: the config's `model_type`.
        hidden_size: width of the residual stream.
        vocab_size: rows of the embedding, padding included.
        layers: the trunk, in order.
        mtp: the head; None when the config says 0. A silent config gives one layer with `declared_at` None.
        vision: the vision tower; None for text-only exports.
        rotary: shared by the trunk's full-attention layers and the head.
        rms_norm_eps: epsilon of every RMSNorm.
        max_position: largest number of positions.
        tie_word_embeddings: lm_head is the embedding.
        text_prefix: prefix of the trunk's tensors on disk: "model.language_model." or "model.".
        end_token_ids: ids that end generation: generation_config's, else config's.
        image_token_ids: ids that stand for images or video in a prompt; refused in text-only serving.
    """

    family: str
    architecture: str
    model_type: str
    hidden_size: int
    vocab_size: int
    layers: tuple[LayerSpec, ...]
    mtp: MtpSpec | None
    vision: VisionSpec | None
    rotary: RotarySpec
    rms_norm_eps: float
    max_position: int
    tie_word_embeddings: bool
    text_prefix: str
    end_token_ids: tuple[int, ...] = ()
    image_token_ids: tuple[int, ...] = ()
