"""Asks SGLang's own selectors which kernels they choose.

Run by the evaluator as source beside SGLang's own, never imported. Each function initialises what a server
would initialise first, then asks. `arguments` are those that the version's initialisers take: the server
arguments, or nothing where they read a published configuration.
"""

from __future__ import annotations

from typing import Any


class Struct:
    """Takes the place of the base of data classes: values by name."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)


class Module:
    """Takes the place of torch's."""

    training = False

    def __init__(self, *values: Any, **keywords: Any) -> None:
        pass


class Layer:
    """A layer that a quantisation method is asked about."""

    num_experts = 8
    num_local_experts = 8
    moe_ep_size = 1
    moe_ep_rank = 0
    moe_tp_size = 1
    moe_tp_rank = 0
    _mega_moe_nvfp4 = False
    _cutedsl_wrapper = None


class RunnerConfig:
    """How experts are to be run."""

    activation = "silu"
    is_gated = True
    num_experts = 8
    num_local_experts = 8
    routing_method_type = None
    apply_router_weight_on_input = False
    no_combine = False
    gemm1_alpha = None
    gemm1_clamp_limit = None
    layer = None


class Runner:
    """Takes the place of the class that runs experts."""

    def __init__(self, runner_backend: Any, config: Any = None, *rest: Any, **keywords: Any) -> None:
        self.runner_backend = runner_backend


def packed_gemm(arguments: Any) -> Any:
    """The backend of a dense layer in NVFP4."""
    from sglang.srt.layers.quantization import fp4_utils

    fp4_utils.initialize_fp4_gemm_config(*arguments)
    return fp4_utils.get_fp4_gemm_runner_backend().value


def scaled_gemm(arguments: Any, method_class: Any, config: Any) -> tuple[Any, Any, Any]:
    """What runs a dense layer in FP8: Marlin, a function for block scales, CUTLASS for one scale."""
    from sglang.srt.layers.quantization import fp8_utils

    fp8_utils.initialize_fp8_gemm_config(*arguments)
    method = method_class(config)
    chosen = getattr(method, "w8a8_block_fp8_linear", None)
    name = None if chosen is None else getattr(chosen, "func", chosen).__name__
    return getattr(method, "use_marlin", False), name, method.cutlass_fp8_supported


def plain_gemm(arguments: Any) -> Any:
    """The backend of a dense layer in BF16, where the version has a choice."""
    from sglang.srt.layers.quantization import unquant

    unquant.initialize_bf16_gemm_config(*arguments)
    return unquant.get_bf16_gemm_backend().value


def expert_runner(
    arguments: Any, method_class: Any, attributes: Any, keywords: Any, for_draft: Any
) -> tuple[Any, Any, Any]:
    """The runner of a MoE layer, what is asked for globally, and whether weights lie as TRT-LLM wants them.

    Args:
        arguments: of `initialize_moe_config`.
        method_class: of the quantisation of the experts.
        attributes: of the constructor.
        keywords: of the constructor, as functions of what is asked for globally.
        for_draft: the layer belongs to the draft model.
    """
    from sglang.srt.layers.moe import utils

    utils.initialize_moe_config(*arguments)
    if for_draft:
        with utils.speculative_moe_backend_context():
            return _expert_runner(utils, method_class, attributes, keywords)
    return _expert_runner(utils, method_class, attributes, keywords)


def _expert_runner(utils: Any, method_class: Any, attributes: Any, keywords: Any) -> tuple[Any, Any, Any]:
    asked = utils.get_moe_runner_backend()
    given = {name: asked.value == value for name, value in keywords.items()}
    method = method_class(*attributes, **given)
    method.create_moe_runner(Layer(), RunnerConfig())
    runner = getattr(method, "runner", None)
    chosen = getattr(runner, "runner_backend", None) or getattr(method, "_moe_runner_backend", None)
    layout = getattr(method, "enable_flashinfer_trtllm_moe", getattr(method, "use_flashinfer_trtllm", None))
    return getattr(chosen, "value", None), getattr(asked, "value", None), layout


def delta_net_kernels(prefill_default: Any) -> tuple[Any, Any, Any, Any]:
    """Classes that run prefill, decode and verify of Gated DeltaNet layers: published configuration."""
    from sglang.srt.layers.attention.linear import gdn_backend, utils

    chosen = utils.resolve_linear_attn_backends(prefill_default=prefill_default)
    kernels = gdn_backend.GDNKernelDispatcher(chosen.decode, chosen.prefill, chosen.verify)
    return _kernel_names(kernels)


def delta_net_kernels_by_arguments(arguments: Any) -> tuple[Any, Any, Any, Any]:
    """The same, where server arguments are handed in."""
    from sglang.srt.layers.attention.linear import gdn_backend, utils

    utils.initialize_linear_attn_config(*arguments)
    decode = utils.get_linear_attn_decode_backend()
    kernels = gdn_backend.GDNKernelDispatcher(decode, utils.get_linear_attn_prefill_backend())
    return _kernel_names(kernels)


def _kernel_names(kernels: Any) -> tuple[Any, Any, Any, Any]:
    return (
        type(kernels.extend_kernel).__name__,
        type(kernels.decode_kernel).__name__,
        type(kernels.verify_kernel).__name__,
        type(getattr(kernels, "tree_verify_kernel", kernels.verify_kernel)).__name__,
    )
