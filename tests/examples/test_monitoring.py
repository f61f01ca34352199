"""The example board asks only for metrics that a server publishes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from draftproof.engine.status import DraftArm, EngineStatus
from draftproof.server.metrics import ServerMetrics
from draftproof.server.running_requests import RunningRequests
from draftproof.speculation.acceptance import AcceptanceCounts
from tests.support.fake_engine import FakeEngineClient

MONITORING = Path(__file__).parents[2] / "examples" / "monitoring"
PANELS: list[dict[str, Any]] = json.loads(
    (MONITORING / "grafana" / "dashboards" / "draftproof.json").read_text(encoding="utf-8")
)["panels"]


@pytest.fixture(scope="module")
def exposition() -> str:
    """Of a server that has something to say about everything."""
    status = EngineStatus(
        acceptance=AcceptanceCounts.of_pass(2, 1, 2), arms=(DraftArm(1, 0, 0.01, 100.0, True),)
    )
    metrics = ServerMetrics(FakeEngineClient(status=status), "tiny", RunningRequests())
    return metrics.exposition().body.decode()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_metrics_and_labels_that_exist(panel: dict[str, Any], exposition: str) -> None:
    for target in panel["targets"]:
        names = set(re.findall(r"draftproof_\w+", target["expr"]))
        assert names
        for name in names:
            assert re.search(rf"^{name}\{{", exposition, re.MULTILINE), name
        for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
            assert any(re.search(rf'^{name}{{.*{label}="', exposition, re.MULTILINE) for name in names), label


def test_panels_have_titles_and_places_of_their_own() -> None:
    assert len({panel["id"] for panel in PANELS}) == len({panel["title"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (place["x"] + across, place["y"] + down)
            for across in range(place["w"])
            for down in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_prometheus_scrapes_what_grafana_reads() -> None:
    compose = (MONITORING / "compose.yaml").read_text(encoding="utf-8")
    source = (MONITORING / "grafana/provisioning/datasources/prometheus.yaml").read_text(encoding="utf-8")
    assert "http://prometheus:9090" in source
    for mounted in re.findall(r"- \./(\S+?):", compose):
        assert (MONITORING / mounted).exists(), mounted
