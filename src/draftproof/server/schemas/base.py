"""What all bodies share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class WireModel(BaseModel):
    """A JSON object from a client: no conversions ("1" is no number), further fields are kept apart."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    @property
    def further_fields(self) -> dict[str, object]:
        """Fields that the model does not name."""
        return dict(self.model_extra or {})
