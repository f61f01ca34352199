"""One reader a quantisation format: from its section of a config to an answer about any module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from draftproof.checkpoint.config import ConfigReader
from draftproof.checkpoint.module_patterns import ModulePatterns, canonical
from draftproof.checkpoint.precision import Precision
from draftproof.checkpoint.quantization_rules import MAX_LIST, DeclaredPrecision, ModuleRules

Answer = Callable[[str], DeclaredPrecision]
Reader = Callable[[ModuleRules], Answer]

MODELOPT_ALGORITHMS: Mapping[str, Precision] = {
    "NVFP4": Precision.NVFP4_MODELOPT,
    "W4A16_NVFP4": Precision.NVFP4_MODELOPT,
    "NVFP4_AWQ": Precision.NVFP4_MODELOPT,
    "NVFP4_SVDQUANT": Precision.NVFP4_MODELOPT,
    "FP8": Precision.FP8_TENSOR,
    "FP8_PB_WO": Precision.FP8_BLOCK,
    "FP8_PB_REAL": Precision.FP8_BLOCK,
    "FP8_PER_CHANNEL_PER_TOKEN": Precision.FP8_CHANNEL,
    "MXFP4": Precision.MXFP4,
    "W4A8_MXFP4_FP8": Precision.MXFP4,
    "W4A16_AWQ": Precision.INT4_PACKED,
    "INT4_AWQ": Precision.INT4_PACKED,
    "W4A8_AWQ": Precision.INT4_PACKED,
    "W8A8_SQ": Precision.INT8,
    "INT8_SQ": Precision.INT8,
}
MIXED = "MIXED_PRECISION"

_FP8_STRATEGIES = {
    "tensor": Precision.FP8_TENSOR,
    "channel": Precision.FP8_CHANNEL,
    "block": Precision.FP8_BLOCK,
}


def fp8_format(rules: ModuleRules) -> Answer:
    """`fp8`: every linear but the listed ones and the output head, in blocks or with one scale."""
    blocks = rules.section.has("weight_block_size")
    precision = Precision.FP8_BLOCK if blocks else Precision.FP8_TENSOR
    rules.name_algorithm(precision.value)
    return _all_but(rules, precision, "quant_method fp8", implicit=("lm_head", "embed_tokens"))


def modelopt_format(rules: ModuleRules) -> Answer:
    """ModelOpt, in config.json or hf_quant_config.json: one algorithm, or a table of layers when mixed."""
    section = rules.section
    if section.has("quantization"):
        # Older files nest the section of hf_quant_config.json.
        inner = ModuleRules(section.section("quantization"))
        answer = modelopt_format(inner)
        rules.name_algorithm(inner.algorithm(), inner.refused())
        rules.excludes, rules.exclude_key = inner.excludes, inner.exclude_key
        return answer
    algorithm = section.string("quant_algo", default="")
    rules.name_algorithm(algorithm)
    if algorithm == MIXED or (not algorithm and section.has("quantized_layers")):
        return _layer_table(rules)
    precision = MODELOPT_ALGORITHMS.get(algorithm.upper(), Precision.UNKNOWN)
    return _all_but(rules, precision, f"{section.where('quant_algo')} {algorithm}")


def compressed_tensors_format(rules: ModuleRules) -> Answer:
    """compressed-tensors: groups of targets, the first that matches counts."""
    section = rules.section
    overall = section.string("format", default="")
    groups: list[tuple[str, ModulePatterns, bool, Precision]] = []
    names = []
    for key in section.section("config_groups").content if section.has("config_groups") else ():
        group = section.section("config_groups").section(key)
        targets = group.strings("targets", MAX_LIST)
        name = group.string("format", default=overall)
        names.append(name)
        patterns = ModulePatterns(target for target in targets if target != "Linear")
        groups.append(
            (group.where("targets"), patterns, "Linear" in targets, _compressed_precision(group, name))
        )
    refused = tuple(pattern for _, patterns, _, _ in groups for pattern in patterns.refused)
    rules.name_algorithm(", ".join(dict.fromkeys(names)) or overall, refused)

    def declared(module: str) -> DeclaredPrecision:
        excluded = rules.excluded(module)
        if excluded is not None:
            return excluded
        for path, patterns, everything, precision in groups:
            if everything or patterns.match(module) is not None:
                return DeclaredPrecision(precision, path)
        return DeclaredPrecision(None, f"no target of {section.where('config_groups')}")

    return declared


def gptq_format(rules: ModuleRules) -> Answer:
    """GPTQ: everything but what a `-:` rule takes out; the first rule of `dynamic` that matches counts."""
    section = rules.section
    dynamic = section.optional_section("dynamic")
    rows: list[tuple[str, bool, ModulePatterns]] = []
    for rule in dynamic.content if dynamic else ():
        expression = rule.removeprefix("-:").removeprefix("+:")
        rows.append((rule, rule.startswith("-:"), ModulePatterns([expression], regular_expressions=True)))
    refused = tuple(rule for rule, _, patterns in rows if patterns.refused)
    rules.name_algorithm(f"GPTQ {section.content.get('bits', '')} bits"[:80], refused)
    head_too = section.content.get("lm_head") is True
    rest = _all_but(rules, Precision.GPTQ, "quant_method gptq", implicit=() if head_too else ("lm_head",))

    def declared(module: str) -> DeclaredPrecision:
        for rule, takes_out, patterns in rows:
            if patterns.match(module) is None:
                continue
            otherwise = rest(module)
            if takes_out or otherwise.precision is not None:
                where = f"{section.where('dynamic')} ({rule!r})"
                return DeclaredPrecision(None if takes_out else Precision.GPTQ, where)
            # `"lm_head": {}` changes settings of a head that is not quantised at all.
            return otherwise
        return rest(module)

    return declared


def auto_round_format(rules: ModuleRules) -> Answer:
    """AutoRound: the blocks that it names, but modules whose own entry says 16 bits or more."""
    section = rules.section
    packing = section.string("packing_format", default="auto_gptq").lower()
    precision = Precision.AWQ if "awq" in packing else Precision.GPTQ
    blocks = section.content.get("block_name_to_quantize")
    names = (
        blocks.split(",")
        if isinstance(blocks, str)
        else (section.strings("block_name_to_quantize", MAX_LIST))
    )
    covered = ModulePatterns(name.strip() for name in names)
    extra = section.optional_section("extra_config")
    wide = ModulePatterns(_wide_modules(extra) if extra else ())
    rules.name_algorithm(
        f"{packing}, {section.content.get('bits', '')} bits"[:80], (*covered.refused, *wide.refused)
    )

    def declared(module: str) -> DeclaredPrecision:
        if (pattern := wide.match(module)) is not None:
            return DeclaredPrecision(None, f"{section.where('extra_config')} ({pattern!r})")
        if names and covered.match(module) is None:
            return DeclaredPrecision(None, f"{section.where('block_name_to_quantize')} (not named)")
        return rules.excluded(module) or DeclaredPrecision(precision, "quant_method auto-round")

    return declared


def awq_format(rules: ModuleRules) -> Answer:
    """AWQ: everything but the listed modules and the output head."""
    rules.name_algorithm(f"AWQ {rules.section.content.get('bits', '')} bits"[:80])
    return _all_but(rules, Precision.AWQ, "quant_method awq", implicit=("lm_head",))


def quark_format(rules: ModuleRules) -> Answer:
    """Quark: a scheme for all, others for named layers, and a list of excluded modules."""
    section = rules.section
    overall = section.optional_section("global_quant_config")
    precision = _quark_precision(overall)
    layers = section.optional_section("layer_quant_config")
    rows = [(name, ModulePatterns([name]), layers.section(name)) for name in layers.content] if layers else []
    refused = tuple(name for name, patterns, _ in rows if patterns.refused)
    rules.name_algorithm(precision.value, refused)
    rest = _all_but(rules, precision, section.where("global_quant_config"))

    def declared(module: str) -> DeclaredPrecision:
        excluded = rules.excluded(module)
        if excluded is not None:
            return excluded
        for name, patterns, layer in rows:
            if patterns.match(module) is not None:
                where = f"{section.where('layer_quant_config')} ({name!r})"
                return DeclaredPrecision(_quark_precision(layer), where)
        return rest(module)

    return declared


def other_format(rules: ModuleRules) -> Answer:
    """A method that is not known: everything but the listed modules is quantised, in some way."""
    method = rules.section.string("quant_method", default="unknown")
    rules.name_algorithm(method)
    precision = Precision.MXFP4 if method.lower() == "mxfp4" else Precision.UNKNOWN
    return _all_but(rules, precision, f"quant_method {method[:40]}", implicit=("lm_head",))


FORMATS: Mapping[str, Reader] = {
    "fp8": fp8_format,
    "modelopt": modelopt_format,
    "compressed-tensors": compressed_tensors_format,
    "gptq": gptq_format,
    "auto-round": auto_round_format,
    "awq": awq_format,
    "quark": quark_format,
}


def _all_but(rules: ModuleRules, precision: Precision, rule: str, implicit: tuple[str, ...] = ()) -> Answer:
    """Everything that is not excluded, by the list or by the method itself."""

    def declared(module: str) -> DeclaredPrecision:
        excluded = rules.excluded(module)
        if excluded is not None:
            return excluded
        if implicit and canonical(module).rpartition(".")[2] in implicit:
            return DeclaredPrecision(None, f"{rule}, which does not cover {module.rpartition('.')[2]}")
        return DeclaredPrecision(precision, rule)

    return declared


def _layer_table(rules: ModuleRules) -> Answer:
    """ModelOpt's mixed precision: only named layers are quantised, each in its own way."""
    section = rules.section
    layers = section.section("quantized_layers")
    table = ModulePatterns(layers.content)
    algorithms: dict[str, Precision] = {}
    for name in layers.content:
        algorithm = layers.section(name).string("quant_algo", default="")
        algorithms[name] = MODELOPT_ALGORITHMS.get(algorithm.upper(), Precision.UNKNOWN)
    used = dict.fromkeys(precision.value for precision in algorithms.values())
    rules.name_algorithm(f"{MIXED}: {', '.join(used)}", table.refused)

    def declared(module: str) -> DeclaredPrecision:
        excluded = rules.excluded(module)
        if excluded is not None:
            return excluded
        name = table.match(module)
        if name is None:
            return DeclaredPrecision(None, f"{section.where('quantized_layers')} (not named)")
        return DeclaredPrecision(algorithms[name], f"{section.where('quantized_layers')} ({name!r})")

    return declared


def _compressed_precision(group: ConfigReader, name: str) -> Precision:
    weights = group.optional_section("weights")
    content: Mapping[str, Any] = weights.content if weights else {}
    if name == "nvfp4-pack-quantized":
        return Precision.NVFP4_COMPRESSED
    if name == "mxfp4-pack-quantized":
        return Precision.MXFP4
    if name == "pack-quantized":
        return Precision.INT4_PACKED
    bits, kind = content.get("num_bits"), content.get("type")
    if name == "float-quantized" or (kind == "float" and bits == 8):
        return _FP8_STRATEGIES.get(str(content.get("strategy")), Precision.UNKNOWN)
    if name == "int-quantized" or (kind == "int" and bits == 8):
        return Precision.INT8
    return Precision.UNKNOWN


def _quark_precision(scheme: ConfigReader | None) -> Precision:
    weight = scheme.content.get("weight") if scheme else None
    if isinstance(weight, list) and weight:
        weight = weight[0]
    if not isinstance(weight, dict):
        return Precision.UNKNOWN
    dtype, scale = str(weight.get("dtype")), str(weight.get("qscheme"))
    if dtype == "fp4":
        return Precision.MXFP4
    if dtype.startswith("fp8"):
        by_scale = {"per_tensor": Precision.FP8_TENSOR, "per_channel": Precision.FP8_CHANNEL}
        return by_scale.get(scale, Precision.UNKNOWN)
    return {"int4": Precision.INT4_PACKED, "int8": Precision.INT8}.get(dtype, Precision.UNKNOWN)


def _wide_modules(extra: ConfigReader) -> list[str]:
    """Modules whose own entry keeps 16 bits or more."""
    return [
        name
        for name, entry in extra.content.items()
        if isinstance(entry, dict) and isinstance(entry.get("bits"), int) and entry["bits"] >= 16
    ]
