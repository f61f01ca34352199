"""Config files of public releases, from tests/data/configs; `_provenance` in each says how sure its content
is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftproof.checkpoint.config import ConfigFile, ConfigFiles

FOLDER = Path(__file__).parents[1] / "data" / "configs"


def public_config_names() -> list[str]:
    """Every release with a config.json here, as `owner_name`."""
    stems = sorted(path.stem for path in FOLDER.glob("*.json"))
    return [stem for stem in stems if not stem.startswith("_") and not stem.endswith(".hf_quant_config")]


def fact_table(name: str) -> Any:
    """One of the tables beside the configs: "_families", "_expected_counts", "_mtp_templates"."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def public_config(name: str) -> dict[str, Any]:
    """The content of a release's config.json (`owner_name`) or hf_quant_config.json."""
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    content.pop("_provenance", None)
    return content


def public_config_files(name: str) -> ConfigFiles:
    """A release's config files, as if they had been read from its folder."""
    own = FOLDER / f"{name}.hf_quant_config.json"
    return config_files(
        public_config(name) if (FOLDER / f"{name}.json").exists() else None,
        public_config(f"{name}.hf_quant_config") if own.exists() else None,
    )


def config_files(
    config: Mapping[str, Any] | None,
    hf_quant_config: Mapping[str, Any] | None = None,
    generation_config: Mapping[str, Any] | None = None,
) -> ConfigFiles:
    """Config files with this content; None is an absent file."""
    return ConfigFiles(
        ConfigFile("config.json", config),
        ConfigFile("hf_quant_config.json", hf_quant_config),
        ConfigFile("generation_config.json", generation_config),
    )
