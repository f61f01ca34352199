"""Asks vLLM's own selectors which kernels they take, for one GPU and one kind of layer.

Run by the evaluator as source beside vLLM's own, never imported. What stands here takes the place of the
process: the GPU, the configuration in force, the layer that a kernel is chosen for.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from vllm.platforms.cuda import CudaPlatformBase, torch
from vllm.platforms.interface import DeviceCapability

MACHINE: dict[str, Any] = {"capability": 0, "cuda": 13}
"""The compute capability times ten, and the major version of CUDA; replaced by whoever evaluates."""


class Gpu(CudaPlatformBase):
    """The platform as vLLM writes it, on a GPU that is not there."""

    device_name = f"SM{MACHINE['capability']}"

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> Any:
        return DeviceCapability(MACHINE["capability"] // 10, MACHINE["capability"] % 10)

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return cls.device_name

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return 96 << 30

    @classmethod
    def get_cuda_runtime_major(cls) -> int:
        return int(MACHINE["cuda"])


PLATFORM = Gpu()


class HummingKind(Enum):
    """The kinds of products that humming-kernels names."""

    DENSE = "dense"
    INDEXED = "indexed"
    GROUPED_CONTIGUOUS = "grouped_contiguous"
    GROUPED_MASKED = "grouped_masked"


class Values:
    """An object with the attributes that it was given."""

    def __init__(self, **given: Any) -> None:
        for name, value in given.items():
            setattr(self, name, value)


def named(kind: Any) -> str:
    """The name of a class, of an object's class, or of a member of an enumeration."""
    return str(getattr(kind, "__name__", None) or getattr(kind, "name", None) or type(kind).__name__)


def configuration(*positional: Any) -> Any:
    """The configuration in force, as far as kernels are chosen by it."""
    kernels = Values(
        linear_backend=MACHINE["linear_backend"],
        moe_backend=MACHINE["moe_backend"],
        linear_backend_per_quant={},
        moe_backend_per_quant={},
    )
    return Values(
        kernel_config=kernels,
        quant_config=None,
        model_config=None,
        attention_config=Values(backend=None, flash_attn_version=None, use_trtllm_attention=None),
        speculative_config=None,
        cache_config=Values(cache_dtype="auto", block_size=None),
        additional_config=MACHINE.get("additional", {}),
    )


# Linear layers.


def nvfp4_linear(weight_only: bool) -> str:
    from vllm.model_executor.kernels.linear import init_nvfp4_linear_kernel

    kernel = init_nvfp4_linear_kernel(True) if weight_only else init_nvfp4_linear_kernel()
    return type(kernel).__name__


def earlier_nvfp4_linear() -> str:
    from vllm.model_executor.layers.quantization.utils.nvfp4_utils import select_nvfp4_linear_backend

    return select_nvfp4_linear_backend().name


def fp8_linear(block: bool, rows: int, columns: int) -> str:
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.quantization.utils import quant_utils

    keys = {
        "weight_quant_key": quant_utils.kFp8Static128BlockSym if block else quant_utils.kFp8StaticTensorSym,
        "activation_quant_key": quant_utils.kFp8Dynamic128Sym if block else quant_utils.kFp8StaticTensorSym,
        "out_dtype": torch.bfloat16,
    }
    try:
        config = linear.FP8ScaledMMLinearLayerConfig(
            **keys, input_dtype=torch.bfloat16, weight_shape=(rows, columns)
        )
    except TypeError:
        config = linear.FP8ScaledMMLinearLayerConfig(**keys)
    kernels = linear._POSSIBLE_FP8_BLOCK_KERNELS if block else linear._POSSIBLE_FP8_KERNELS
    return chosen(linear.choose_scaled_mm_linear_kernel, config, kernels, block)


def earlier_fp8_linear() -> str:
    """The form of versions in which one class holds all kernels of block scales."""
    from vllm.model_executor.layers.quantization.utils import fp8_utils
    from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape

    operation = fp8_utils.W8A8BlockFp8LinearOp(GroupShape(128, 128), GroupShape(1, 128))
    if operation.is_deep_gemm_supported:
        return "deep_gemm"
    return str(operation.w8a8_blockscale_op.__name__)


def chosen(choose: Any, config: Any, kernels: Any, block: bool) -> str:
    """Versions differ in whether they ask for the scheme."""
    scheme = "fp8_block_w8a8" if block else "fp8_w8a8"
    try:
        kind = choose(config, kernels, quantization=scheme)
    except TypeError:
        kind = choose(config, kernels)
    return str(kind.__name__)


def unquantised_linear() -> str:
    from vllm.model_executor.layers.utils import dispatch_unquantized_gemm

    return str(dispatch_unquantized_gemm().__name__)


# Experts.


def experts_config(layer: dict[str, Any]) -> Any:
    """vLLM's own description of a layer of experts.

    Args:
        layer: hidden, intermediate, experts, per_token, ranks, expert_parallel, eplb, backend, sigmoid.
    """
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.config import (
        FusedMoEConfig,
        FusedMoEParallelConfig,
        RoutingMethodType,
    )

    ranks, spread = layer["ranks"], layer["expert_parallel"]
    parallel = object.__new__(FusedMoEParallelConfig)
    values = {
        "tp_size": 1 if spread else ranks,
        "ep_size": ranks if spread else 1,
        **dict.fromkeys(("pcp_size", "dp_size", "sp_size"), 1),
        **dict.fromkeys(("tp_rank", "pcp_rank", "dp_rank", "ep_rank"), 0),
        "use_ep": spread,
        "all2all_backend": layer["all2all"],
        "enable_eplb": layer["eplb"],
    }
    for name, value in values.items():
        setattr(parallel, name, value)
    routing = RoutingMethodType.DeepSeekV3 if layer["sigmoid"] else RoutingMethodType.Renormalize
    config = object.__new__(FusedMoEConfig)
    values = {
        "num_experts": layer["experts"],
        "num_logical_experts": layer["experts"],
        "num_local_experts": layer["experts"] // (ranks if spread else 1),
        "experts_per_token": layer["per_token"],
        "hidden_dim": layer["hidden"],
        "intermediate_size": layer["intermediate"],
        "intermediate_size_per_partition": layer["intermediate"] // (1 if spread else ranks),
        "activation": MoEActivation.SILU,
        "device": "cuda",
        "routing_method": routing,
        "moe_parallel_config": parallel,
        "in_dtype": torch.bfloat16,
        "router_logits_dtype": torch.bfloat16,
        "moe_backend": layer["backend"],
        "max_num_tokens": 8192,
        "is_act_and_mul": True,
        "has_bias": False,
        "is_lora_enabled": False,
        "swiglu_limit": None,
    }
    for name, value in values.items():
        try:
            setattr(config, name, value)
        except AttributeError:
            continue
    return config


def selected(answer: Any) -> list[str]:
    """The backend's name and its class's, of what a selector returns."""
    backend, kind = answer if isinstance(answer, tuple) else (answer, None)
    return [named(backend), "" if kind is None else named(kind)]


def nvfp4_experts(layer: dict[str, Any], weight_only: bool) -> list[str]:
    from vllm.model_executor.layers.fused_moe.oracle.nvfp4 import select_nvfp4_moe_backend
    from vllm.model_executor.layers.quantization.utils import quant_utils

    activation = None if weight_only else quant_utils.kNvfp4Dynamic
    return selected(select_nvfp4_moe_backend(experts_config(layer), quant_utils.kNvfp4Static, activation))


def fp8_experts(layer: dict[str, Any], block: bool) -> list[str]:
    from vllm.model_executor.layers.fused_moe.oracle.fp8 import select_fp8_moe_backend
    from vllm.model_executor.layers.quantization.utils import quant_utils

    weight = quant_utils.kFp8Static128BlockSym if block else quant_utils.kFp8StaticTensorSym
    activation = quant_utils.kFp8Dynamic128Sym if block else quant_utils.kFp8StaticTensorSym
    return selected(select_fp8_moe_backend(experts_config(layer), weight, activation))


def unquantised_experts(layer: dict[str, Any]) -> list[str]:
    from vllm.model_executor.layers.fused_moe.oracle import unquantized

    config = experts_config(layer)
    try:
        return selected(unquantized.select_unquantized_moe_backend(config))
    except TypeError:
        return selected(unquantized.select_unquantized_moe_backend(config, layer["expert_parallel"], False))


# Attention.


def attention(wanted: str, values: dict[str, Any], heads: int) -> str:
    """The class of the attention backend.

    Args:
        wanted: a backend asked for by name; empty for none.
        values: head_size, kv_cache_dtype, block_size, and use_mla.
        heads: query heads of one rank.
    """
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig

    backend = AttentionBackendEnum[wanted.upper()] if wanted else None
    config = AttentionSelectorConfig(dtype=torch.bfloat16, **values)
    return str(PLATFORM.get_attn_backend_cls(backend, config, heads))


# Gated DeltaNet.


def engine(text: dict[str, Any], prefill: str) -> Any:
    model = Values(hf_text_config=Values(**text), dtype=torch.bfloat16)
    return Values(model_config=model, additional_config={"gdn_prefill_backend": prefill} if prefill else {})


def gated_delta_prefill(text: dict[str, Any], prefill: str) -> str:
    from vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn import _resolve_gdn_prefill_backend

    return str(_resolve_gdn_prefill_backend(engine(text, prefill))[1])


def earlier_gated_delta_prefill(text: dict[str, Any], prefill: str) -> str:
    """The form of versions whose layer decides in its own constructor."""
    from vllm.model_executor.layers.mamba.gdn_linear_attn import ChunkGatedDeltaRule

    MACHINE["additional"] = {"gdn_prefill_backend": prefill} if prefill else {}
    layer = object.__new__(ChunkGatedDeltaRule)
    layer.__init__()
    is_library = layer._forward_method.__name__ == "forward_cuda"
    return "flashinfer" if is_library else "triton"


def gated_delta_decode(shape: dict[str, Any]) -> list[str]:
    """The kernel of decode and verify passes, and why it is not the fused one."""
    from vllm import envs
    from vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn import QwenGatedDeltaNetAttention

    layer = object.__new__(QwenGatedDeltaNetAttention)
    layer.gqa_interleaved_layout = shape["interleaved"]
    layer.head_k_dim, layer.head_v_dim = shape["key"], shape["value"]
    layer.norm = Values(activation="silu")
    state = torch.float32 if shape["float32"] else torch.bfloat16
    layer.get_state_dtype = lambda: (torch.bfloat16, state)
    wanted = envs.VLLM_GDN_DECODE_KERNEL
    if wanted != "cuda":
        return [wanted, "asked for"]
    reason = layer._fused_gdn_decode_unsupported_reason(Values(model_config=Values(dtype=torch.bfloat16)))
    return ["triton", reason] if reason else ["cuda", ""]


# State and cache.


def state_blocks(mode: str, drafts: int, checkpoints: int) -> int:
    """Full states that one request keeps."""
    from vllm.v1.kv_cache_interface import MambaSpec

    more = {"num_prefill_checkpoint_blocks": checkpoints} if checkpoints else {}
    spec = MambaSpec(
        block_size=1,
        shapes=(),
        dtypes=(),
        page_size_padded=1,
        mamba_cache_mode=mode,
        num_speculative_blocks=drafts,
        **more,
    )
    cache = Values(mamba_cache_mode=mode)
    return int(spec.max_memory_usage_bytes(Values(cache_config=cache, model_config=Values(max_model_len=1))))


def state_shapes(ranks: int, heads: dict[str, int], drafts: int) -> Any:
    """The convolution's and the recurrent state's shape on one rank."""
    from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator

    return MambaStateShapeCalculator.gated_delta_net_state_shape(
        ranks, heads["keys"], heads["values"], heads["key"], heads["value"], heads["kernel"], drafts
    )


def prefix_caching_by_default() -> bool:
    from vllm.config.model import ModelConfig

    class Hybrid(ModelConfig):
        attn_type = "hybrid"
        pooler_config = None
        runner_type = "generate"

    return bool(object.__new__(Hybrid).is_prefix_caching_supported)


def cache_mode(prefix_caching: bool) -> str:
    """How the state is kept, by whether prefixes are."""
    from vllm.model_executor.models.config import MambaModelConfig

    cache = Values(
        enable_prefix_caching=prefix_caching, mamba_cache_mode="none", mamba_block_size=None, block_size=16
    )
    model = Values(supports_mamba_prefix_caching=False, architecture="", max_model_len=1)
    engine_config = Values(
        model_config=model, cache_config=cache, scheduler_config=Values(enable_chunked_prefill=True)
    )
    MambaModelConfig.verify_and_update_config(engine_config)
    return str(cache.mamba_cache_mode)


def smallest_block(backend: str) -> int:
    """Tokens of the smallest block that an attention backend takes."""
    from vllm.utils.import_utils import resolve_obj_by_qualname

    sizes = resolve_obj_by_qualname(backend).get_supported_kernel_block_sizes()
    return min(getattr(size, "base", size) for size in sizes)
