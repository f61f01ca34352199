"""What all bodies share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _as_integer(value: object) -> object:
    """16.0 as 16, which are the same number in JSON; anything else as it is."""
    return int(value) if type(value) is float and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_as_integer)]
"""A whole number from a client, however it is written."""


class WireModel(BaseModel):
    """A JSON object from a client: no conversions ("1" is no number), further fields are kept apart."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    @property
    def further_fields(self) -> dict[str, object]:
        """Fields that the model does not name."""
        return dict(self.model_extra or {})
