"""From a config to its family, and to what it says about the MTP head."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.architecture.families import FAMILIES, Family
from draftproof.checkpoint.config import ConfigReader
from draftproof.errors import ConfigError, UnknownArchitecture

MAX_HEAD_LAYERS = 64


@dataclass(frozen=True)
class DeclaredField:
    """A config field that says something about the head.

    Attributes:
        json_path: `text_config.mtp_num_hidden_layers`.
        value: what it says, as text for fields that are no count.
    """

    json_path: str
    value: int | str


@dataclass(frozen=True)
class MtpDeclaration:
    """What a config says about its MTP head.

    Attributes:
        family: whose fields were looked up.
        count: layers of the head; None when the config says nothing.
        json_path: the field that `count` comes from.
        fields: every field about the head that is there, that one included.
        conflicts: sentences about fields that contradict each other.
    """

    family: Family
    count: int | None
    json_path: str | None
    fields: tuple[DeclaredField, ...]
    conflicts: tuple[str, ...]

    @property
    def expected_layers(self) -> int:
        """Layers to expect in the weights: the declared count, else that of silent releases of the family."""
        return self.family.count_when_silent if self.count is None else self.count


def detect_family(config: ConfigReader) -> Family:
    """The family of a config, by `model_type` at the top level, then in text_config.

    Raises:
        UnknownArchitecture: no family has this model type.
        ConfigError: there is no usable model type.
    """
    if config.has("speculators_model_type"):
        return next(family for family in FAMILIES if family.key == "speculators")
    text = config.optional_section("text_config")
    readers = [reader for reader in (config, text) if reader is not None and reader.has("model_type")]
    if not readers:
        raise config.error("model_type", "the name of an architecture")
    names = [reader.string("model_type") for reader in readers]
    for name in names:
        for family in FAMILIES:
            if any(_matches(pattern, name) for pattern in family.model_types):
                return family
    raise UnknownArchitecture(
        f"model_type {names[0][:80]!r} is of no family that draftproof knows",
        "Known are: " + ", ".join(family.title for family in FAMILIES if family.model_types) + ".",
    )


def mtp_declaration(config: ConfigReader, family: Family | None = None) -> MtpDeclaration:
    """Looks up everything that a config says about the head.

    Args:
        config: config.json.
        family: None detects it.

    Raises:
        UnknownArchitecture: the family is not known.
        ConfigError: a field of the head is no sensible count.
    """
    family = family or detect_family(config)
    found = list(_counts(config, family))
    conflicts = [*_count_conflicts(found), *_list_conflicts(config, family, found)]
    count, path = (int(found[0].value), found[0].json_path) if found else (None, None)
    fields = [*found, *_related(config, family, {field.json_path for field in found})]
    if family.switch_field and config.has(family.switch_field):
        switched_on = config.boolean(family.switch_field)
        fields.append(DeclaredField(family.switch_field, str(switched_on).lower()))
        if not switched_on:
            if count:
                conflicts.append(f"{family.switch_field} is false and {path} is {count}")
            count, path = 0, family.switch_field
    return MtpDeclaration(family, count, path, tuple(fields), tuple(conflicts))


def text_section(config: ConfigReader) -> ConfigReader:
    """The object that describes the language model: text_config, or the top level of a text-only export."""
    return config.optional_section("text_config") or config


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _places(config: ConfigReader, family: Family) -> list[ConfigReader]:
    places = [config.optional_section(place) if place else config for place in family.places]
    return [place for place in places if place is not None]


def _counts(config: ConfigReader, family: Family) -> list[DeclaredField]:
    """Count fields that are there: by field first, by place second."""
    found = []
    for dotted in family.count_fields:
        outer, _, key = dotted.rpartition(".")
        for place in _places(config, family):
            holder = place.optional_section(outer) if outer else place
            if holder is not None and holder.has(key):
                value = holder.integer(key, 0, MAX_HEAD_LAYERS)
                found.append(DeclaredField(holder.where(key), value))
    return found


def _count_conflicts(found: list[DeclaredField]) -> list[str]:
    """Fields of one name in two places that differ; different names may count different things."""
    conflicts = []
    for field in found[1:]:
        same_name = [other for other in found if _key(other) == _key(field)]
        if same_name[0] is not field and same_name[0].value != field.value:
            first = same_name[0]
            conflicts.append(f"{first.json_path} is {first.value} and {field.json_path} is {field.value}")
    return conflicts


def _key(field: DeclaredField) -> str:
    return field.json_path.rpartition(".")[2]


def _list_conflicts(config: ConfigReader, family: Family, found: list[DeclaredField]) -> list[str]:
    """`mtp_layer_types` with another number of entries than the head has layers."""
    if "mtp_layer_types" not in family.related_fields or not found:
        return []
    types = config.content.get("mtp_layer_types")
    if isinstance(types, list) and len(types) != found[0].value:
        return [f"mtp_layer_types has {len(types)} entries and {found[0].json_path} is {found[0].value}"]
    return []


def _related(config: ConfigReader, family: Family, known: set[str]) -> list[DeclaredField]:
    fields = []
    for key in family.related_fields:
        for place in _places(config, family):
            if place.has(key) and place.where(key) not in known:
                fields.append(DeclaredField(place.where(key), _as_text(place, key)))
    return fields


def _as_text(place: ConfigReader, key: str) -> int | str:
    value = place.content[key]
    if type(value) is int:
        return place.integer(key, -(2**53))
    if isinstance(value, (str, bool)):
        return str(value)[:80]
    if isinstance(value, list) and len(value) <= 256:
        return ", ".join(str(item)[:40] for item in value)
    raise ConfigError(place.error(key, "a number, a text or a short list").message)
