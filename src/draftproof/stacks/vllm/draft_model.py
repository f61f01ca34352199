"""The draft model, built and loaded by vLLM's own constructors and loaders, run by the evaluator.

Nothing is imported and no number is computed: tensors have a shape, a dtype and a name. One rank, one CUDA
device, default settings: how the head is divided over GPUs is a question of the launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.stacks.evaluation import (
    Evaluator,
    Given,
    Instance,
    Missing,
    Named,
    Outcome,
    Settings,
    pretrained_config,
)
from draftproof.stacks.evaluation.outcomes import Condition, LogMessage, RaisedError
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import StoredTensor
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.class_location import ClassSite
from draftproof.stacks.vllm.surroundings import DRIVER, surroundings, with_stand_ins

CONFIGURE = Named("vllm/model_executor/model_loader/utils.py", "configure_quant_config")
_BOUND = Settings(
    paths=1,
    steps=3_000_000,
    depth=120,
    traced=frozenset(("copy_", "register_parameter")),
    labels_traced=frozenset(),
    decide=lambda text, place: False,
)
"""A single way: what is not known of the surroundings is taken to be off, as without further options."""


@dataclass(frozen=True)
class Quantisation:
    """The quantisation that vLLM recognises.

    Attributes:
        method: vLLM's name: "modelopt_fp4".
        config_class: the class of its configuration.
        section: what the class is made from.
    """

    method: str
    config_class: Named
    section: Mapping[str, Any]


@dataclass(frozen=True)
class DraftSubject:
    """What is built.

    Attributes:
        draft: the draft's class.
        target: the target's class, whose names the quantisation's lists are adapted to; None when unknown.
        config: the target's config.json.
        draft_config: the same after vLLM's override for the draft.
        quantisation: of the checkpoint; None for none.
    """

    draft: ClassSite
    target: ClassSite | None
    config: Mapping[str, Any]
    draft_config: Mapping[str, Any]
    quantisation: Quantisation | None


@dataclass(frozen=True)
class BuiltParameter:
    """A parameter of the draft model.

    Attributes:
        name: qualified name.
        shape: of the whole.
        dtype: torch's name: "bfloat16".
        module: class of the layer that owns it.
        method: class of that layer's quantisation method; empty for a layer without.
        writes: names of the tensors that were copied into it, one for each copy.
        written: elements that were copied into it.
        is_filled: made with a value (ones, zeros), not as bare memory.
        place: where the stack makes it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    module: str
    method: str
    writes: tuple[str, ...]
    written: int
    is_filled: bool
    place: Place

    @property
    def elements(self) -> int:
        """Of the whole."""
        total = 1
        for side in self.shape:
            total *= side
        return total


@dataclass(frozen=True)
class DraftRun:
    """What came of building and loading.

    Attributes:
        parameters: in the model's order; empty when it was not built.
        error: the exception that ended it; None when it came to its end.
        errors: by tensor name, of tensors loaded one by one: name of the exception and its message.
        log: what was logged.
        conditions: what was assumed about the surroundings.
        places: tensor name -> where it was copied.
        problem: why nothing can be said; empty when it was followed to its end.
        problem_place: where.
    """

    parameters: tuple[BuiltParameter, ...]
    error: RaisedError | None
    errors: Mapping[str, tuple[str, str]]
    log: tuple[LogMessage, ...]
    conditions: tuple[Condition, ...]
    places: Mapping[str, tuple[Place, ...]]
    problem: str = ""
    problem_place: Place | None = None


class DraftBuilder:
    """Builds and loads one draft model, as often as asked.

    Args:
        tree: vLLM's source.
        subject: what is built.
    """

    def __init__(self, tree: SourceTree, subject: DraftSubject) -> None:
        self._subject = subject
        self._evaluator = Evaluator(with_stand_ins(tree), surroundings(_platform()), _BOUND)

    def load(self, tensors: Sequence[StoredTensor]) -> DraftRun:
        """Build the model and load all tensors in one go."""
        return _described(self._call("build_and_load", tensors))

    def load_singly(self, tensors: Sequence[StoredTensor]) -> DraftRun:
        """Build the model and load the tensors one by one, past every error."""
        return _described(self._call("build_and_load_singly", tensors))

    def _call(self, function: str, tensors: Sequence[StoredTensor]) -> Outcome:
        subject = self._subject
        quantisation = subject.quantisation
        stored = [(tensor.name, tensor.shape, tensor.dtype) for tensor in tensors]
        target = subject.target
        outcomes = self._evaluator.call(
            DRIVER,
            function,
            stored,
            Named(subject.draft.file, subject.draft.name),
            None if target is None else Named(target.file, target.name),
            None if quantisation is None else quantisation.config_class,
            {} if quantisation is None else dict(quantisation.section),
            CONFIGURE,
            _vllm_config(subject),
        )
        return outcomes[0]


def _platform() -> dict[str, Any]:
    """An NVIDIA GPU of which no more is said."""
    answers = {"is_cuda": True, "is_cuda_alike": True, "is_fp8_fnuz": False, "use_sync_weight_loader": False}
    others = ("is_rocm", "is_xpu", "is_cpu", "is_tpu", "is_hpu", "is_out_of_tree", "is_neuron")
    methods = {name: _constant(value) for name, value in answers.items()}
    methods.update({name: _constant(False) for name in others})
    platform = Given("current_platform", {}, methods=methods, missing=Missing.UNKNOWN)
    return {"vllm.platforms.current_platform": platform}


def _constant(value: object) -> Any:
    return lambda *_arguments, **_keywords: value


def _vllm_config(subject: DraftSubject) -> Given:
    target = _model_config("model_config", subject.config, subject.quantisation)
    draft = _model_config("draft_model_config", subject.draft_config, subject.quantisation)
    speculative = Given(
        "speculative_config",
        {"draft_model_config": draft, "method": "mtp", "num_speculative_tokens": 1},
        missing=Missing.NONE,
    )
    compilation = Given(
        "compilation_config",
        {
            "static_forward_context": {},
            "static_all_moe_layers": [],
            "custom_ops": ["none"],
            "fast_moe_cold_start": False,
        },
        missing=Missing.NONE,
    )
    parallel = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "data_parallel_rank": 0,
        "prefill_context_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "enable_expert_parallel": False,
        "use_sequence_parallel_moe": False,
        "enable_eplb": False,
        "enable_dbo": False,
        "all2all_backend": "allgather_reducescatter",
        "expert_placement_strategy": "linear",
        "eplb_config": Given("eplb_config", {"num_redundant_experts": 0}, missing=Missing.NONE),
    }
    return Given(
        "vllm_config",
        {
            "model_config": target,
            "speculative_config": speculative,
            "compilation_config": compilation,
            "parallel_config": Given("parallel_config", parallel, missing=Missing.NONE),
            "cache_config": Given(
                "cache_config",
                {"cache_dtype": "auto", "block_size": 16, "mamba_cache_mode": "none"},
                missing=Missing.NONE,
            ),
            "scheduler_config": Given(
                "scheduler_config",
                {"max_num_batched_tokens": 8192, "max_num_seqs": 256},
                missing=Missing.NONE,
            ),
            "kernel_config": Given(
                "kernel_config", {"moe_backend": "auto", "linear_backend": "auto"}, missing=Missing.NONE
            ),
            "device_config": Given("device_config", {"device": "cuda", "device_type": "cuda"}),
            "lora_config": None,
            "quant_config": None,
        },
        missing=Missing.NONE,
    )


def _model_config(name: str, content: Mapping[str, Any], quantisation: Quantisation | None) -> Given:
    config = pretrained_config(content, f"{name}.hf_config")
    text = config.attributes.get("text_config")
    return Given(
        name,
        {
            "hf_config": config,
            "hf_text_config": text if isinstance(text, Given) else config,
            "dtype": Named("draftproof_stand_ins/torch_parts.py", "bfloat16"),
            "quantization": None if quantisation is None else quantisation.method,
            "multimodal_config": None,
            "max_model_len": 32768,
            "use_mla": False,
            "is_moe": True,
        },
        missing=Missing.NONE,
    )


def _described(outcome: Outcome) -> DraftRun:
    returned = outcome.returned
    problem = outcome.not_understood
    model = returned[0] if isinstance(returned, tuple) and isinstance(returned[0], Instance) else None
    errors = returned[1] if isinstance(returned, tuple) and isinstance(returned[1], dict) else {}
    return DraftRun(
        () if model is None else tuple(_parameters(model, _made_at(outcome))),
        outcome.raised,
        {str(name): (str(error[0]), str(error[1])) for name, error in errors.items()},
        outcome.log,
        outcome.conditions,
        _copies(outcome),
        "" if problem is None else problem.reason,
        None if problem is None else problem.place,
    )


def _made_at(outcome: Outcome) -> dict[int, Place]:
    """Where a parameter was registered, by the serial number of its object."""
    return {
        call.positional[-1].serial: call.place
        for call in outcome.calls("register_parameter")
        if call.positional and isinstance(call.positional[-1], Instance)
    }


def _copies(outcome: Outcome) -> dict[str, tuple[Place, ...]]:
    places: dict[str, tuple[Place, ...]] = {}
    for call in outcome.calls("copy_"):
        source = call.positional[0] if call.positional else None
        storage = source.attributes.get("storage") if isinstance(source, Instance) else None
        if isinstance(storage, Instance):
            label = str(storage.attributes.get("label"))
            places[label] = (*places.get(label, ()), call.place)
    return places


def _parameters(model: Instance, made_at: Mapping[int, Place]) -> Iterator[BuiltParameter]:
    seen: set[int] = set()
    for owner_name, owner in _modules("", model, set()):
        for name, value in owner.attributes.items():
            if not isinstance(value, Instance) or not _is_a(value, "Parameter") or id(value) in seen:
                continue
            seen.add(id(value))
            storage = value.attributes["storage"]
            writes = [pair for pair in storage.attributes["writes"] if isinstance(pair, tuple)]
            place = made_at.get(value.serial) or owner.place_of(name) or Place(DRIVER, 1)
            method = owner.attributes.get("quant_method")
            yield BuiltParameter(
                f"{owner_name}.{name}" if owner_name else name,
                tuple(value.attributes["shape"]),
                str(value.attributes["dtype"].attributes["name"]),
                owner.cls.name,
                method.cls.name if isinstance(method, Instance) else "",
                tuple(str(label) for label, _ in writes),
                sum(count for _, count in writes if isinstance(count, int)),
                bool(storage.attributes["is_filled"]),
                place,
            )


def _modules(name: str, module: Instance, seen: set[int]) -> Iterator[tuple[str, Instance]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    yield name, module
    for child_name, child in module.attributes.items():
        if isinstance(child, Instance) and _is_a(child, "Module"):
            yield from _modules(f"{name}.{child_name}" if name else child_name, child, seen)


def _is_a(value: Instance, class_name: str) -> bool:
    return any(entry.name == class_name and "torch_parts" in entry.module for entry in value.cls.mro)
