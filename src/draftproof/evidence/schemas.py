"""The published JSON Schemas.

``python -m draftproof.evidence.schemas docs/schemas`` writes them; a test compares them with the models.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import BaseModel

from draftproof.evidence.comparison_json import ComparisonModel
from draftproof.evidence.inventory_report import InventoryModel, TensorsModel
from draftproof.evidence.json_report import ChainModel
from draftproof.evidence.plan_json import PlanModel
from draftproof.evidence.report_models import ErrorModel

SCHEMAS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("verify.schema.json", ChainModel),
    ("comparison.schema.json", ComparisonModel),
    ("plan.schema.json", PlanModel),
    ("inspect.schema.json", InventoryModel),
    ("tensors.schema.json", TensorsModel),
    ("error.schema.json", ErrorModel),
)
"""File name and model of every published schema."""


def schema_text(model: type[BaseModel]) -> str:
    """The JSON Schema of a report, ending with a newline."""
    return json.dumps(model.model_json_schema(), indent=2) + "\n"


def write_schemas(directory: Path) -> None:
    """Writes every published schema into a folder, which is made when it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, model in SCHEMAS:
        (directory / name).write_text(schema_text(model), encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
