"""A model's config as an object, in the way that `transformers` gives it to a stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from draftproof.stacks.evaluation.settings import Given
from draftproof.stacks.evaluation.values import Arguments, Instance, Missing, NativeFunction

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

_NESTED = ("text_config", "vision_config", "audio_config", "decoder", "mtp_config", "thinker_config")


def pretrained_config(
    content: Mapping[str, Any],
    name: str = "hf_config",
    file: str = "",
    class_name: str = "PretrainedConfig",
    missing: Missing = Missing.RAISES,
) -> Given:
    """A config object.

    Args:
        content: as read from config.json; nested configs ("text_config") become objects of their own.
        name: how conditions call it; a nested one is "name.text_config".
        file: where the stack has a class for it; empty for a class that nothing is known about.
        class_name: of that class.
        missing: what is answered for a field that the file does not have. A config class may have defaults;
            RAISES is what `transformers` does for fields that it does not know either.
    """
    attributes: dict[str, Any] = {
        key: pretrained_config(value, f"{name}.{key}", missing=missing)
        if key in _NESTED and isinstance(value, Mapping)
        else value
        for key, value in content.items()
    }
    text = attributes.get("text_config")
    methods = {
        "update": NativeFunction("update", _update),
        "to_dict": _to_dict,
        "get": _get,
        "get_text_config": lambda self, *_, **__: self.attributes.get("text_config", self),
    }
    attributes.setdefault("architectures", None)
    if text is None and "model_type" not in attributes:
        attributes["model_type"] = ""
    return Given(name, attributes, file, class_name, methods, missing)


def _update(run: Run, arguments: Arguments) -> None:
    """`config.update({...})` assigns attributes."""
    config, changes = arguments.positional
    if not isinstance(changes, dict):
        raise run.refused("an update of a config with unknown fields", arguments.place)
    for key, value in changes.items():
        run.set_attribute(config, key, value, arguments.place)


def _to_dict(self: Instance) -> dict[str, Any]:
    return {
        key: _to_dict(value) if isinstance(value, Instance) else value
        for key, value in self.attributes.items()
        if key not in ("update", "to_dict", "get", "get_text_config")
    }


def _get(self: Instance, name: str, default: Any = None) -> Any:
    return self.attributes.get(name, default)
