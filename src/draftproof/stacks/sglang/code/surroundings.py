"""What takes the place of everything around a draft model: torch, the process, the GPU, other layers.

The evaluator runs SGLang's own constructors and loaders; these are the names at which it meets other things.
"""

from __future__ import annotations

import importlib.resources
from typing import Any

from draftproof.stacks.evaluation.settings import Named, Settings
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree
from draftproof.stacks.torch_names import PARTS, torch_substitutes

CUDA = "13.0"
"""Every version so far has its newest gate at 12.9 or 13.0; which kernels run is another link's question."""

DRIVER = "draftproof_stand_ins/sglang_driver.py"
PROCESS = "draftproof_stand_ins/sglang_process.py"
COMPRESSED = "draftproof_stand_ins/compressed_tensors_parts.py"

_CONTEXT = "sglang.srt.runtime_context"
_COMMON = "sglang.srt.utils.common"
_STATE = "sglang.srt.distributed.parallel_state"
_ATTENTION = "sglang.srt.layers.dp_attention"

_PROCESS = {
    f"{_CONTEXT}.get_parallel": "parallel",
    **{
        f"{_CONTEXT}.get_{part}": "arguments"
        for part in (
            *("model", "exec", "spec", "schedule", "memory", "device", "lora", "mm", "disagg", "serving"),
            *("server_args", "flags", "forward", "observability", "resources"),
        )
    },
    f"{_CONTEXT}.get_platform": "platform",
    "sglang.srt.server_args.get_global_server_args": "arguments",
    **{
        f"{_STATE}.{name}": "group"
        for name in (
            *("get_pp_group", "get_tp_group", "get_moe_ep_group", "get_moe_tp_group", "get_world_group"),
            *("get_attn_tp_group", "get_attn_cp_group", "get_moe_dp_group"),
        )
    },
    **{
        f"{_STATE}.{name}": "one"
        for name in (
            *("get_tensor_model_parallel_world_size", "get_moe_expert_parallel_world_size"),
            *("get_moe_tensor_parallel_world_size", "get_pipeline_model_parallel_world_size"),
            *("get_attn_tensor_model_parallel_world_size", "get_attn_context_model_parallel_world_size"),
            *("get_moe_data_parallel_world_size", "model_parallel_is_initialized"),
        )
    },
    **{
        f"{_STATE}.{name}": "zero"
        for name in (
            *("get_tensor_model_parallel_rank", "get_moe_expert_parallel_rank"),
            *("get_moe_tensor_parallel_rank", "get_pipeline_model_parallel_rank"),
            *("get_attn_tensor_model_parallel_rank", "get_attn_context_model_parallel_rank"),
            "get_moe_data_parallel_rank",
        )
    },
    **{
        f"{_ATTENTION}.{name}": "one"
        for name in ("get_attention_tp_size", "get_attention_dp_size", "get_attention_cp_size")
    },
    **{
        f"{_ATTENTION}.{name}": "zero"
        for name in ("get_attention_tp_rank", "get_attention_dp_rank", "get_attention_cp_rank")
    },
    f"{_ATTENTION}.get_attention_tp_group": "group",
    f"{_ATTENTION}.is_dp_attention_enabled": "false",
    f"{_ATTENTION}.is_allocation_symmetric": "false",
}

_GPU = {
    f"{_COMMON}.is_cuda": "true",
    f"{_COMMON}.is_cuda_alike": "true",
    **{
        f"{_COMMON}.is_{name}": "false"
        for name in (
            *("hip", "npu", "xpu", "hpu", "cpu", "musa", "mps", "sail", "host_cpu_x86", "host_cpu_arm64"),
            *("habana_available", "gfx95_supported", "gfx942_supported", "gfx1250_supported"),
        )
    },
    f"{_COMMON}.cpu_has_amx_support": "false",
    f"{_COMMON}.get_device_capability": "capability",
    f"{_COMMON}.get_device_sm": "capability_number",
    "torch.cuda.get_device_capability": "capability",
    "torch.cuda.is_available": "true",
    "torch.finfo": "limits",
    "torch.iinfo": "limits",
    "sgl_kernel.scalar_type.scalar_types": "SCALAR_TYPES",
    "torch.compile": "decorator",
    "torch.Size": "size",
    "torch.cuda.current_device": "zero",
    "torch.cuda.set_device": "nothing",
    "deep_gemm.get_num_sms": "processors",
    "torch.distributed.is_initialized": "false",
    "torch.mps.is_available": "false",
    "torch.xpu.is_available": "false",
    "torch.cuda.Stream": "nothing",
    "torch.cuda.Event": "nothing",
    "torch.cuda.empty_cache": "nothing",
    "torch.cuda.synchronize": "nothing",
    "sglang.srt.platforms.current_platform": "GPU",
}

_MODEL_CONFIG = "sglang.srt.configs.model_config"
_LOADER_FILES = "sglang.srt.model_loader.weight_utils"
_FILES = {
    "os.path.exists": "exists",
    "os.path.isfile": "exists",
    "os.path.isdir": "is_folder",
    "glob.glob": "other_files",
    f"{_MODEL_CONFIG}.open": "open_file",
    f"{_LOADER_FILES}.open": "open_file",
    "json.load": "read_file",
}

_ENVIRONMENT = {
    "types.MappingProxyType": "unchanged",
    "inspect.getattr_static": "attribute",
    "inspect.isclass": "is_class",
    "contextlib.suppress": "Suppressed",
    "concurrent.futures.ThreadPoolExecutor": "Executor",
    "concurrent.futures.as_completed": "unchanged",
    "msgspec.Struct": "Struct",
    "msgspec.field": "field",
    f"{_CONTEXT}.get_stream": "nothing",
    # It forbids itself once the module is read; names of modules are read in another order here.
    "sglang.srt.environ.EnvField.__set_name__": "named",
}

_COMPRESSED_TENSORS = {
    f"compressed_tensors{part}.{name}": name
    for part in ("", ".quantization", ".config", ".config.base")
    for name in (
        *("QuantizationType", "QuantizationStrategy", "ActivationOrdering", "CompressionFormat"),
        *("SparsityStructure", "QuantizationArgs", "SparsityCompressionConfig"),
    )
}

_LATENT = "sglang.srt.models.deepseek_common.deepseek_weight_loader.DeepseekV2WeightLoaderMixin"
_AFTERWARDS = {
    # What is made of weights once all of them are there.
    f"{_LATENT}.post_load_weights": "nothing",
}

_OTHER_LAYERS = {
    "sglang.srt.layers.moe.moe_runner.runner.MoeRunner": "Runner",
    "sglang.srt.layers.radix_attention.RadixAttention": "WithoutParameters",
    "sglang.srt.layers.radix_linear_attention.RadixLinearAttention": "WithoutParameters",
    "sglang.srt.layers.logits_processor.LogitsProcessor": "WithoutParameters",
    "sglang.srt.layers.rotary_embedding.get_rope": "rotary",
    "sglang.srt.layers.rotary_embedding.get_rope_wrapper": "rotary",
    "sglang.srt.layers.rotary_embedding.factory.get_rope": "rotary",
    "sglang.srt.layers.rotary_embedding.factory.get_rope_wrapper": "rotary",
    "sglang.srt.layers.moe.topk.TopK": "WithoutParameters",
    "sglang.srt.layers.activation.SiluAndMul": "WithoutParameters",
    "sglang.srt.layers.layer_boundary.factories.append_stages": "two_stages",
    "sglang.srt.layers.layer_boundary.factories.layer_stack": "stages",
    "sglang.srt.layers.communicator.LayerCommunicator": "WithoutParameters",
    "sglang.srt.utils.common.set_default_torch_dtype": "stages",
}

_WHOLE_MODEL = {
    "sglang.srt.model_loader.utils.get_model_architecture": "architecture",
    "transformers.PretrainedConfig": "PretrainedConfig",
    "transformers.configuration_utils.PretrainedConfig": "PretrainedConfig",
}


def surroundings() -> dict[str, Any]:
    """Dotted names and what takes their place."""
    made: dict[str, Any] = dict(torch_substitutes())
    made["torch.version.cuda"] = CUDA
    made["torch.version.hip"] = None
    made.update({name: Named(DRIVER, part) for name, part in _WHOLE_MODEL.items()})
    made["transformers.models.auto.CONFIG_MAPPING"] = {}
    made.update({name: Named(COMPRESSED, part) for name, part in _COMPRESSED_TENSORS.items()})
    for table in (_PROCESS, _GPU, _FILES, _ENVIRONMENT, _AFTERWARDS, _OTHER_LAYERS):
        made.update({name: Named(PROCESS, part) for name, part in table.items()})
    return made


_OTHER_PLATFORMS = ("aiter", "torch_npu", "sgl_kernel_npu", "intel_extension", "habana", "mori", "mindspore")
_OTHER_DEVICES = ("mps", "hpu", "xpu", "npu", "musa")


def installed(question: str, place: Place) -> bool | None:
    """Answers for the evaluator: what belongs to NVIDIA GPUs is there, what belongs to others is not."""
    if question.startswith("import "):
        return not question.removeprefix("import ").startswith(_OTHER_PLATFORMS)
    if "find_spec(" in question or question.endswith(".exists)()"):
        return not question.endswith(" is None")
    if "torch.ops." in question and question.endswith(" is None"):
        return False
    if question.startswith(("hasattr(torch", "torch.")):
        if any(f"'{device}'" in question or f"torch.{device}." in question for device in _OTHER_DEVICES):
            return False
        if question.endswith(" is None"):
            return False
        return True if question.startswith("hasattr(torch") else None
    return False if question.startswith("transformers.") and question.endswith(" is None") else None


def with_stand_ins(tree: SourceTree) -> SourceTree:
    """SGLang's tree with the files that `surroundings` names."""
    folder = importlib.resources.files("draftproof.stacks.stand_ins")
    texts = {
        path: (folder / path.rpartition("/")[2]).read_text("utf-8")
        for path in (PARTS, PROCESS, DRIVER, COMPRESSED)
    }
    return OverlaidTree(tree, {**texts, "draftproof_stand_ins/__init__.py": ""})


SETTINGS = Settings(
    paths=8, steps=4_000_000, decide=installed, traced=frozenset({"mark"}), labels_traced=frozenset()
)
"""For evaluators of SGLang's source with the stand-ins."""
