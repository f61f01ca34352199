"""What the config files say about precision: declarations, compared with the tensors and never believed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from draftproof.checkpoint.config import ConfigFile, ConfigFiles
from draftproof.checkpoint.precision import ModulePrecision, Precision
from draftproof.checkpoint.quantization_formats import FORMATS, other_format
from draftproof.checkpoint.quantization_rules import DeclaredPrecision, ModuleRules


@dataclass(frozen=True)
class QuantizationDeclaration:
    """What one config file says.

    Attributes:
        file: the file.
        json_path: the object in it.
        method: `quant_method`, or the producer's name.
        algorithm: the scheme or schemes, in the file's own words.
        excludes: modules that it says are not quantised, in its own words.
        exclude_path: JSON path of that list; None when there is none.
        refused: entries that are not applied (no valid or a hostile regular expression).
        cache_scheme: what it says about the key/value cache; None when nothing.
        block: rows and columns of an FP8 block; None when it does not say.
        declared: what it says about one module, by its name on disk without `.weight`. Only meaningful for
            linears and experts: norms and convolutions are never asked about.
    """

    file: str
    json_path: str
    method: str
    algorithm: str
    excludes: tuple[str, ...]
    exclude_path: str | None
    refused: tuple[str, ...]
    cache_scheme: str | None
    block: tuple[int, int] | None
    declared: Callable[[str], DeclaredPrecision]


def read_declarations(files: ConfigFiles) -> tuple[QuantizationDeclaration, ...]:
    """What each config file declares: config.json, then hf_quant_config.json; nothing for a plain model.

    Raises:
        ConfigError: a file is unusable, or its quantisation section is malformed.
    """
    found = []
    config = files.config.optional()
    if config is not None:
        places = [config, config.optional_section("text_config")]
        for place in (place for place in places if place is not None):
            for key in ("quantization_config", "compression_config", "quantization"):
                if place.has(key):
                    found.append(_declaration(files.config, ModuleRules(place.section(key))))
                    break
            if found:
                break
    own = files.hf_quant_config.optional()
    if own is not None:
        section = own.section("quantization") if own.has("quantization") else own
        found.append(_declaration(files.hf_quant_config, ModuleRules(section, "modelopt")))
    return tuple(found)


def disagreement(declared: DeclaredPrecision, stored: ModulePrecision) -> str | None:
    """How a declaration and the tensors disagree, in one sentence; None when they agree."""
    if stored.weight is None:
        return None
    if declared.precision is None:
        if stored.precision.is_plain:
            return None
        return (
            f"{stored.module} is {stored.precision.value} on disk, but {declared.rule} leaves it unquantised"
        )
    if stored.precision.is_plain:
        return f"{stored.module} is {stored.precision.value} on disk, but {declared.rule} quantises it"
    if Precision.UNKNOWN in (declared.precision, stored.precision) or declared.precision is stored.precision:
        return None
    return (
        f"{stored.module} is {stored.precision.value} on disk, "
        f"but {declared.rule} says {declared.precision.value}"
    )


def _declaration(file: ConfigFile, rules: ModuleRules) -> QuantizationDeclaration:
    section = rules.section
    method = section.string("quant_method", default=rules.default_method or _producer(rules))
    read = FORMATS.get(_family_of(method), other_format)
    declared = read(rules)
    block = section.integers("weight_block_size", 1, 2**16, 2)
    return QuantizationDeclaration(
        file=file.name,
        json_path=rules.json_path,
        method=method,
        algorithm=rules.algorithm(),
        excludes=rules.excludes,
        exclude_path=rules.exclude_path,
        refused=rules.refused(),
        cache_scheme=_cache_scheme(rules),
        block=(block[0], block[1]) if len(block) == 2 else None,
        declared=declared,
    )


def _producer(rules: ModuleRules) -> str:
    """Files without quant_method: ModelOpt names itself as producer, MLX has bits and a group size only."""
    producer = rules.section.optional_section("producer")
    if producer is not None and producer.has("name"):
        return producer.string("name")
    if rules.section.has("config_groups"):
        return "compressed-tensors"
    if rules.section.has("quant_algo"):
        return "modelopt"
    return "mlx" if rules.section.has("bits") and rules.section.has("group_size") else "unknown"


def _family_of(method: str) -> str:
    """`modelopt_fp4` and the like are ModelOpt; `intel/auto-round` is AutoRound."""
    method = method.lower().replace("_", "-")
    for family in FORMATS:
        if method == family or method.startswith(f"{family}-") or method.endswith(f"/{family}"):
            return family
    return method


def _cache_scheme(rules: ModuleRules) -> str | None:
    section = rules.section
    if section.has("kv_cache_quant_algo"):
        return section.string("kv_cache_quant_algo")
    scheme = section.content.get("kv_cache_scheme")
    if isinstance(scheme, dict):
        return f"{scheme.get('num_bits')} bits {scheme.get('type')}"[:80]
    return None if scheme is None else str(scheme)[:80]
