"""Build the target and its MTP head from a checkpoint, with every tensor accounted for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from draftproof.architecture.spec import (
    AttentionSpec,
    DenseMlpSpec,
    GatedDeltaNetSpec,
    LayerSpec,
    ModelSpec,
    MtpSpec,
)
from draftproof.kernels.gated_delta_step.reference import GatedDeltaParameters
from draftproof.layers.attention import Attention
from draftproof.layers.decoder import AttentionLayer, DecoderLayer, RecurrentLayer
from draftproof.layers.gated_delta_net import GatedDeltaNet
from draftproof.layers.linear import Linear
from draftproof.layers.mlp import GatedMlp
from draftproof.layers.moe import MixtureOfExperts
from draftproof.layers.norm import OffsetRmsNorm
from draftproof.layers.packed_mixture import PackedMixture
from draftproof.layers.rotary import RotaryEmbedding
from draftproof.models.account import LoadReport, TensorAccount
from draftproof.models.experts import load_mixture, load_mlp
from draftproof.models.projections import join, load_linear, tied_head
from draftproof.models.qwen3_5 import Qwen35Model
from draftproof.models.qwen3_5_mtp import MtpHead
from draftproof.models.stored_linear import LoadTarget, Matrix, Stored, read_matrix
from draftproof.models.weight_storage import WeightStorage

VISION_SKIPPED = "vision tower (text only)"
HEAD_SKIPPED = "MTP head (drafting without it)"
TIED_SKIPPED = "lm_head (the config ties it to the embedding)"


@dataclass(frozen=True)
class LoadedModel:
    """A target, its head if it was asked for, and what became of the tensors."""

    target: Qwen35Model
    head: MtpHead | None
    report: LoadReport


def load_model(
    spec: ModelSpec,
    account: TensorAccount,
    target: LoadTarget,
    positions: int,
    device: torch.device,
    with_head: bool,
) -> LoadedModel:
    """Load everything.

    Args:
        spec: the architecture.
        account: the checkpoint's tensors.
        target: compute dtype and storage of quantised weights.
        positions: longest sequence, for the rotary tables.
        device: where the parameters live.
        with_head: whether the MTP head is wanted.

    Raises:
        AccountingError: a tensor is missing, has another shape, or is left over.
    """
    builder = _Builder(spec, account, target)
    rotary = RotaryEmbedding(spec.rotary, positions, device)
    model = builder.target(rotary)
    head = builder.head(model, spec.mtp) if with_head and spec.mtp is not None else None
    if head is None:
        account.skip_prefix("mtp.", HEAD_SKIPPED)
    account.skip_prefix("model.visual.", VISION_SKIPPED)
    return LoadedModel(model, head, account.close())


class _Builder:
    """Names and shapes of every module of one spec."""

    def __init__(self, spec: ModelSpec, account: TensorAccount, target: LoadTarget) -> None:
        self._spec = spec
        self._account = account
        self._target = target

    def target(self, rotary: RotaryEmbedding) -> Qwen35Model:
        spec = self._spec
        table = (spec.vocab_size, spec.hidden_size)
        embedding = self._account.take(f"{spec.text_prefix}embed_tokens.weight", table).to(self._target.dtype)
        layers = tuple(
            self._layer(f"{spec.text_prefix}layers.{index}.", layer)
            for index, layer in enumerate(spec.layers)
        )
        if spec.tie_word_embeddings:
            lm_head = tied_head(embedding, self._target)
            self._account.skip_prefix("lm_head.", TIED_SKIPPED)
        else:
            lm_head = load_linear(self._account, "lm_head", table, self._target)
        final_norm = self._norm(f"{spec.text_prefix}norm.weight", spec.hidden_size)
        return Qwen35Model(spec, embedding, layers, final_norm, lm_head, rotary)

    def head(self, target: Qwen35Model, mtp: MtpSpec) -> MtpHead:
        hidden = self._spec.hidden_size
        layers = [self._layer(f"mtp.layers.{index}.", mtp.layer) for index in range(mtp.num_layers)]
        return MtpHead(
            target=target,
            embedding_norm=self._norm("mtp.pre_fc_norm_embedding.weight", hidden),
            hidden_norm=self._norm("mtp.pre_fc_norm_hidden.weight", hidden),
            fc=load_linear(self._account, "mtp.fc", (hidden, 2 * hidden), self._target),
            layers=tuple(layer for layer in layers if isinstance(layer, AttentionLayer)),
            norm=self._norm("mtp.norm.weight", hidden),
        )

    def _layer(self, prefix: str, layer: LayerSpec) -> DecoderLayer:
        hidden = self._spec.hidden_size
        input_norm = self._norm(f"{prefix}input_layernorm.weight", hidden)
        post_norm = self._norm(f"{prefix}post_attention_layernorm.weight", hidden)
        mlp = self._mlp(f"{prefix}mlp.", layer)
        if isinstance(layer.mixer, AttentionSpec):
            return AttentionLayer(
                input_norm, self._attention(f"{prefix}self_attn.", layer.mixer), post_norm, mlp
            )
        return RecurrentLayer(
            input_norm, self._gated_delta_net(f"{prefix}linear_attn.", layer.mixer), post_norm, mlp
        )

    def _mlp(self, prefix: str, layer: LayerSpec) -> GatedMlp | MixtureOfExperts | PackedMixture:
        if isinstance(layer.mlp, DenseMlpSpec):
            return load_mlp(
                self._account, prefix, self._spec.hidden_size, layer.mlp.intermediate_size, self._target
            )
        return load_mixture(self._account, prefix, self._spec.hidden_size, layer.mlp, self._target)

    def _attention(self, prefix: str, spec: AttentionSpec) -> Attention:
        hidden = self._spec.hidden_size
        query_width = spec.num_heads * spec.head_dim
        key_width = spec.num_key_value_heads * spec.head_dim
        projections = [
            self._matrix(f"{prefix}q_proj", query_width * (2 if spec.gated else 1), hidden),
            self._matrix(f"{prefix}k_proj", key_width, hidden),
            self._matrix(f"{prefix}v_proj", key_width, hidden),
        ]
        return Attention(
            spec=spec,
            projections=join(projections, self._target),
            output=self._linear(f"{prefix}o_proj", hidden, query_width),
            query_norm=self._norm(f"{prefix}q_norm.weight", spec.head_dim),
            key_norm=self._norm(f"{prefix}k_norm.weight", spec.head_dim),
        )

    def _gated_delta_net(self, prefix: str, spec: GatedDeltaNetSpec) -> GatedDeltaNet:
        take = self._account.take
        heads = (spec.num_value_heads,)
        convolution = take(f"{prefix}conv1d.weight", (spec.conv_dim, 1, spec.conv_kernel))
        parameters = GatedDeltaParameters(
            convolution=convolution.squeeze(1).to(self._target.dtype),
            negative_a=-take(f"{prefix}A_log", heads).float().exp(),
            dt_bias=take(f"{prefix}dt_bias", heads).float(),
            norm=take(f"{prefix}norm.weight", (spec.value_head_dim,)).float(),
            norm_epsilon=self._spec.rms_norm_eps,
            num_key_heads=spec.num_key_heads,
            key_head_dim=spec.key_head_dim,
        )
        return GatedDeltaNet(
            spec=spec,
            projections=self._fused_inputs(prefix, spec)
            if spec.fused_projections
            else self._inputs(prefix, spec),
            output=self._linear(f"{prefix}out_proj", self._spec.hidden_size, spec.value_dim),
            parameters=parameters,
        )

    def _inputs(self, prefix: str, spec: GatedDeltaNetSpec) -> Linear:
        hidden = self._spec.hidden_size
        members = [
            self._matrix(f"{prefix}in_proj_qkv", spec.conv_dim, hidden),
            self._matrix(f"{prefix}in_proj_z", spec.value_dim, hidden),
            self._matrix(f"{prefix}in_proj_a", spec.num_value_heads, hidden),
            self._matrix(f"{prefix}in_proj_b", spec.num_value_heads, hidden),
        ]
        return join(members, self._target)

    def _fused_inputs(self, prefix: str, spec: GatedDeltaNetSpec) -> Linear:
        """Qwen3-Next: rows lie per key head as [q, k, v, z] and [b, a]; put them in the order of
        `_inputs`."""
        hidden = self._spec.hidden_size
        dense = replace(self._target, storage=WeightStorage.DENSE)
        per_head = spec.num_value_heads // spec.num_key_heads
        value_width = per_head * spec.value_head_dim
        widths = (
            (f"{prefix}in_proj_qkvz", (spec.key_head_dim, spec.key_head_dim, value_width, value_width)),
            (f"{prefix}in_proj_ba", (per_head, per_head)),
        )
        members = []
        for module, parts in widths:
            rows = spec.num_key_heads * sum(parts)
            matrix = read_matrix(self._account, module, (rows, hidden), dense)
            assert isinstance(matrix, Matrix)
            by_key_head = torch.split(torch.arange(rows).view(spec.num_key_heads, sum(parts)), list(parts), 1)
            members.append([matrix.select_rows(order.flatten()) for order in by_key_head])
        (query, key, value, gate), (b, a) = members
        return join([query, key, value, gate, a, b], self._target)

    def _matrix(self, module: str, rows: int, columns: int) -> Stored:
        return read_matrix(self._account, module, (rows, columns), self._target)

    def _linear(self, module: str, rows: int, columns: int) -> Linear:
        return load_linear(self._account, module, (rows, columns), self._target)

    def _norm(self, name: str, width: int) -> OffsetRmsNorm:
        return OffsetRmsNorm(self._account.take(name, (width,)), self._spec.rms_norm_eps)
