"""Whether the config files say the same about the same thing, wherever they say it.

A contradiction that nothing else can settle is a false claim. One that the weights settle (tying, lists of
modules that are not quantized) is a warning here, and link 2 compares it with the tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.checkpoint.config import ConfigFiles
from draftproof.evidence import EvidenceItem, Location, Note, Verdict, information, warning
from draftproof.evidence.quantities import count_text, listing
from draftproof.links.shell_commands import ShellCommands

_CONFIG = "config.json"
_QUANTIZATION = "quantization_config"

# Top-level copies of these are no second statement about the model: each belongs to its own object, or only
# says how the file was written.
_OWN_TO_EACH = frozenset(
    (
        "model_type",
        "architectures",
        "dtype",
        "torch_dtype",
        "transformers_version",
        "use_cache",
        "_name_or_path",
    )
)
_SETTLED_ELSEWHERE = frozenset(("tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"))


@dataclass(frozen=True)
class _Statement:
    """What one field says."""

    file: str
    path: str
    value: Any

    def __str__(self) -> str:
        where = self.path if self.file == _CONFIG else f"{self.file}: {self.path}"
        return f"{where} = {_short(self.value)}"

    @property
    def location(self) -> Location:
        return Location(self.file, field=self.path)


def agreement_items(files: ConfigFiles, commands: ShellCommands) -> Iterator[EvidenceItem]:
    """One claim for each pair of places that could contradict each other and are both there."""
    content = files.config.content or {}
    text = content.get("text_config")
    if isinstance(text, Mapping):
        yield _levels_agree(content, text, commands)
    yield _rotary_agrees(content, text if isinstance(text, Mapping) else content, commands)
    inline, own = content.get(_QUANTIZATION), (files.hf_quant_config.content or {}).get("quantization")
    if isinstance(inline, Mapping) and isinstance(own, Mapping):
        yield _quantization_agrees(inline, own, files.hf_quant_config.name, commands)


def _levels_agree(
    content: Mapping[str, Any], text: Mapping[str, Any], commands: ShellCommands
) -> EvidenceItem:
    both = [
        (_Statement(_CONFIG, key, content[key]), _Statement(_CONFIG, f"text_config.{key}", text[key]))
        for key in content
        if key in text and key not in _OWN_TO_EACH and None not in (content[key], text[key])
    ]
    # The count of the head's layers has a claim of its own.
    both = [pair for pair in both if "nextn" not in pair[0].path and "mtp" not in pair[0].path]
    different = [pair for pair in both if pair[0].value != pair[1].value]
    settled = [pair for pair in different if pair[0].path in _SETTLED_ELSEWHERE]
    broken = [pair for pair in different if pair not in settled]
    shown = broken or settled or both
    return _agreement(
        check="levels-agree",
        claim="The top level and text_config say the same where both speak.",
        broken=broken,
        agreed=f"{count_text(len(both), 'field')} in both, and equal" if both else "no field is in both",
        command=commands.field(_CONFIG, shown[0][0].path if shown else "text_config"),
        notes=[
            warning(f"{one}, {other}: engines differ in which they read", one.location, other.location)
            for one, other in settled
        ],
    )


def _rotary_agrees(
    content: Mapping[str, Any], text: Mapping[str, Any], commands: ShellCommands
) -> EvidenceItem:
    """rope_theta, partial_rotary_factor and the kind of scaling, in every place that releases have used."""
    prefix = "" if text is content else "text_config."
    broken = []
    found = 0
    for key, spellings in (
        ("rope_theta", ("rope_theta",)),
        ("partial_rotary_factor", ("partial_rotary_factor",)),
        ("rope_type", ("rope_type", "type")),
        ("factor", ("factor",)),
    ):
        statements = list(_rotary_statements(text, prefix, spellings))
        if text is not content:
            statements += list(_rotary_statements(content, "", spellings))
        found += len(statements)
        if key == "rope_type":
            statements = [s for s in statements if s.value != "mrope"]
        broken += [
            (statements[0], other) for other in statements[1:] if not _same(statements[0].value, other.value)
        ]
    return _agreement(
        check="rotary-agrees",
        claim="The rotary embedding is described once, or equally wherever it is.",
        broken=broken,
        agreed=f"{found} fields, no two of them different; the head rotates as the target does",
        command=commands.field(_CONFIG, "rope_theta"),
    )


def _rotary_statements(
    holder: Mapping[str, Any], prefix: str, spellings: Iterable[str]
) -> Iterator[_Statement]:
    places = [(prefix, holder)]
    for section in ("rope_parameters", "rope_scaling"):
        inner = holder.get(section)
        if isinstance(inner, Mapping):
            places.append((f"{prefix}{section}.", inner))
    for path, place in places:
        for key in spellings:
            # A bare `type` or `factor` outside the rope objects means something else.
            if place.get(key) is not None and (place is not holder or key.startswith(("rope", "partial"))):
                yield _Statement(_CONFIG, f"{path}{key}", place[key])


def _quantization_agrees(
    inline: Mapping[str, Any], own: Mapping[str, Any], own_file: str, commands: ShellCommands
) -> EvidenceItem:
    broken = [
        (
            _Statement(_CONFIG, f"{_QUANTIZATION}.{path}", one),
            _Statement(own_file, f"quantization.{key}", other),
        )
        for path, one, key, other in _comparable(inline, own)
        if one is not None and other is not None and not _same(one, other)
    ]
    method = inline.get("quant_method")
    if isinstance(method, str) and not method.startswith("modelopt"):
        broken.append(
            (
                _Statement(_CONFIG, f"{_QUANTIZATION}.quant_method", method),
                _Statement(own_file, "producer", "modelopt"),
            )
        )
    return _agreement(
        check="quantization-agrees",
        claim=f"{_CONFIG} and {own_file} name the same quantization.",
        broken=broken,
        agreed=f"both say {own.get('quant_algo') or inline.get('quant_algo')}",
        command=commands.field(own_file, "quant_algo"),
        notes=list(_list_notes(inline, own, own_file)),
    )


def _comparable(inline: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[tuple[str, Any, str, Any]]:
    """(path in config.json, value, key in hf_quant_config.json, value) of what both may state."""
    yield "quant_algo", inline.get("quant_algo"), "quant_algo", own.get("quant_algo")
    groups = inline.get("config_groups")
    for name, group in groups.items() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping):
            path = f"config_groups.{name}.weights.group_size"
            yield path, weights.get("group_size"), "group_size", own.get("group_size")
    scheme = inline.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        name = (
            f"FP{scheme.get('num_bits')}" if scheme.get("type") == "float" else f"INT{scheme.get('num_bits')}"
        )
        yield "kv_cache_scheme", name, "kv_cache_quant_algo", own.get("kv_cache_quant_algo")


def _list_notes(inline: Mapping[str, Any], own: Mapping[str, Any], own_file: str) -> Iterator[Note]:
    """Lists of modules are hints that the tensors settle; a stack reads one of them and not the other."""
    for one_key, other_key in (("ignore", "exclude_modules"), ("quantized_layers", "quantized_layers")):
        one, other = inline.get(one_key), own.get(other_key)
        if not isinstance(one, (list, Mapping)) or not isinstance(other, (list, Mapping)):
            continue
        first, second = {str(name) for name in one}, {str(name) for name in other}
        if first != second:
            only = sorted(first ^ second)
            yield warning(
                f"{_QUANTIZATION}.{one_key} and {own_file}'s {other_key} differ in {len(only)} entries "
                f"({listing(only, 3)}): SGLang reads {_CONFIG} and looks at {own_file} only without it",
                Location(_CONFIG, field=f"{_QUANTIZATION}.{one_key}"),
                Location(own_file, field=f"quantization.{other_key}"),
            )
    if inline.get("kv_cache_scheme") is None and own.get("kv_cache_quant_algo"):
        yield information(
            f"only {own_file} asks for a {own['kv_cache_quant_algo']} KV cache",
            Location(own_file, field="quantization.kv_cache_quant_algo"),
        )


def _agreement(
    check: str,
    claim: str,
    broken: list[tuple[_Statement, _Statement]],
    agreed: str,
    command: str,
    notes: Iterable[Note] = (),
) -> EvidenceItem:
    return EvidenceItem(
        check=check,
        claim=claim,
        verdict=Verdict.DISPROVED if broken else Verdict.PROVEN,
        expected="equal values",
        observed="; ".join(f"{one}, {other}" for one, other in broken) or agreed,
        where=tuple(statement.location for pair in broken for statement in pair) or (Location(_CONFIG),),
        command=command,
        notes=tuple(notes),
    )


def _same(one: Any, other: Any) -> bool:
    """Equal, or equal but for the case of a name; 1 and True are different."""
    if isinstance(one, str) and isinstance(other, str):
        return one.lower() == other.lower()
    return (type(one) is type(other) and one == other) or (
        not isinstance(one, bool) and not isinstance(other, bool) and one == other
    )


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
