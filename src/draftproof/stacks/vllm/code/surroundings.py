"""What takes the place of everything around a draft model: torch, the process, the GPU, other layers.

The evaluator runs vLLM's own constructors and loaders; these are the names at which it meets something else.
"""

from __future__ import annotations

import importlib.resources
from typing import Any

from draftproof.stacks.evaluation.settings import Given, Named
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.source import SourceTree
from draftproof.stacks.torch_names import PARTS, torch_substitutes

STAND_INS = "draftproof_stand_ins/"
"""Folder of everything that is not the stack's own."""
DRIVER = "draftproof_stand_ins/vllm_driver.py"
COMPRESSED = "draftproof_stand_ins/compressed_tensors_parts.py"

_BATCH_NORMS = tuple(
    f"torch.nn.{name}"
    for name in (
        *("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
        *("LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d"),
    )
)

_PARALLEL = "vllm.distributed.parallel_state"
_ONE_RANK = {
    **{
        f"{_PARALLEL}.{name}": "group"
        for name in (
            *("get_pp_group", "get_tp_group", "get_ep_group", "get_dp_group", "get_pcp_group"),
            *("get_dcp_group", "get_eplb_group", "get_world_group"),
        )
    },
    f"{_PARALLEL}.get_tensor_model_parallel_world_size": "one",
    f"{_PARALLEL}.get_tensor_model_parallel_rank": "zero",
    f"{_PARALLEL}.get_decode_context_model_parallel_world_size": "one",
    f"{_PARALLEL}.model_parallel_is_initialized": "one",
}

_OTHER_LAYERS = {
    "vllm.model_executor.layers.attention.Attention": "WithoutParameters",
    "vllm.model_executor.layers.attention.attention.Attention": "WithoutParameters",
    "vllm.model_executor.layers.attention.mla_attention.MLAAttention": "LatentAttention",
    "vllm.attention.layer.Attention": "WithoutParameters",
    "vllm.model_executor.layers.rotary_embedding.get_rope": "rotary",
    "vllm.model_executor.layers.logits_processor.LogitsProcessor": "WithoutParameters",
    "vllm.model_executor.layers.fused_moe.router.router_factory.create_fused_moe_router": "router",
    "vllm.model_executor.custom_op.CustomOp.dispatch_forward": "nothing",
    "vllm.model_executor.layers.utils.dispatch_unquantized_gemm": "nothing",
    "vllm.model_executor.models.utils._get_tied_embedding_params": "tied_embeddings",
    "vllm.compilation.decorators.support_torch_compile": "decorator",
}

_STANDARD_LIBRARY = {
    "contextlib.suppress": "Suppressing",
    "itertools.groupby": "grouped",
    "inspect.getattr_static": "static_attribute",
}

_COMPRESSED_TENSORS = {
    f"compressed_tensors{part}.{name}": name
    for part in ("", ".quantization", ".config", ".config.base")
    for name in (
        *("QuantizationType", "QuantizationStrategy", "ActivationOrdering", "CompressionFormat"),
        *("SparsityStructure", "QuantizationArgs", "SparsityCompressionConfig"),
    )
}

_CONFIGURATION = {
    "vllm.platforms.current_platform": "PLATFORM",
    "vllm.config.vllm.get_current_vllm_config": "current",
    "vllm.config.vllm.get_current_vllm_config_or_none": "current",
    "vllm.config.vllm.get_cached_compilation_config": "compilation",
}


METHODS = "vllm/model_executor/layers/quantization/__init__.py"


def surroundings() -> dict[str, Any]:
    """Dotted names and what takes their place."""
    made: dict[str, Any] = dict(torch_substitutes())
    made.update({name: Named(PARTS, "BatchNorm") for name in _BATCH_NORMS})
    made.update({name: Named(COMPRESSED, part) for name, part in _COMPRESSED_TENSORS.items()})
    for table in (_ONE_RANK, _OTHER_LAYERS, _STANDARD_LIBRARY, _CONFIGURATION):
        made.update({name: Named(DRIVER, part) for name, part in table.items()})
    made["vllm.config.model.me_quant"] = _quantisations()
    return made


def _quantisations() -> Given:
    """The module of quantisations, which vLLM imports when it is first used."""
    names = (
        *("QUANTIZATION_METHODS", "DEPRECATED_QUANTIZATION_METHODS", "QuantizationMethods"),
        "get_quantization_config",
    )
    return Given("me_quant", {name: Named(METHODS, name) for name in names})


def with_stand_ins(tree: SourceTree) -> SourceTree:
    """A stack's tree with the files that `surroundings` names."""
    folder = importlib.resources.files("draftproof.stacks.stand_ins")
    texts = {
        path: (folder / path.rpartition("/")[2]).read_text("utf-8") for path in (PARTS, DRIVER, COMPRESSED)
    }
    return OverlaidTree(tree, {**texts, "draftproof_stand_ins/__init__.py": ""})
