"""`inspect` on the terminal and as JSON."""

import io
import json

import pytest
from rich.console import Console

from draftproof.evidence import Location, Subject, warning
from draftproof.evidence.inventory import FoundTensors, HeadInventory, Inventory, ModuleGroup, TensorFacts
from draftproof.evidence.inventory_report import InventoryModel, TensorsModel
from draftproof.evidence.inventory_terminal import print_inventory, print_tensors
from draftproof.evidence.report_models import render_json

SUBJECT = Subject("org/model", "https://hub/org/model", "SomeArchitecture", "abc")
FLAGSHIP = Inventory(
    subject=SUBJECT,
    family="Qwen3.5/3.6/3.8",
    model_type="qwen3_5_moe",
    dimensions=(("layers", "60: 15 full attention, 45 Gated DeltaNet"),),
    head=HeadInventory(
        1, Location("config.json", "mtp_num"), 1553, 1553, 1553, 13_191_136_256, "fused", ("a",)
    ),
    layout="experts one by one",
    quantization=("config.json: modelopt NVFP4",),
    groups=(
        ModuleGroup("target", "routed experts", "NVFP4 (ModelOpt)", 368_640, 217_430_000_000),
        ModuleGroup("head", "norms", "BF16", 7, 1),
    ),
    files=39,
    tensors=371_444,
    size=251_190_000_000,
    anomalies=(warning("mtp.fc is \x1b[1mBF16", command="grep x"),),
)
SILENT = Inventory(
    subject=SUBJECT,
    family="",
    model_type="llama\ud800",
    dimensions=(),
    head=HeadInventory(None, None, None, 0, 0, 0, "", ()),
    layout="",
    quantization=(),
    groups=(),
    files=0,
    tensors=0,
    size=0,
    anomalies=(),
)
TENSORS = FoundTensors(
    SUBJECT,
    "mtp",
    30,
    (
        TensorFacts(
            "mtp.\x1bfc",
            "BF16",
            (64, 128),
            "f",
            8,
            16384,
            "all 8,192",
            (("mean", 0.5), ("RMS", float("nan"))),
        ),
    ),
)


def terminal(show, content, width=80):
    stream = io.StringIO()
    show(Console(file=stream, width=width, markup=False, highlight=False), content)
    return stream.getvalue()


def test_the_terminal_shows_head_precision_and_anomalies():
    text = terminal(print_inventory, FLAGSHIP)
    for part in (
        "1,553 of 1,553 tensors, fused",
        "13.19 GB",
        "NVFP4 (ModelOpt)",
        "368,640",
        "39 files, 251.19 GB, 371,444 tensors",
        "! WARN mtp.fc is \\x1b[1mBF16",
        "see: grep x",
        "draftproof verify org/model",
    ):
        assert part in text


@pytest.mark.parametrize("width", [50, 80])
def test_it_fits_narrow_terminals(width):
    lines = terminal(print_inventory, FLAGSHIP, width).splitlines()
    assert all(len(line) <= width for line in lines if "see:" not in line and "verdict" not in line)


def test_what_is_not_known_is_not_invented():
    text = terminal(print_inventory, SILENT)
    assert "declared  nothing" in text
    assert "Precision" not in text
    parsed = json.loads(render_json(InventoryModel.of(SILENT)))
    assert "declared_layers" not in parsed["head"]
    assert "family" not in parsed
    assert parsed["model_type"] == "llama\\ud800"


def test_json_carries_numbers_not_texts():
    parsed = json.loads(render_json(InventoryModel.of(FLAGSHIP)))
    assert (parsed["kind"], parsed["size"], parsed["head"]["present"]) == ("inspect", 251_190_000_000, 1553)
    assert parsed["groups"][0]["tensors"] == 368_640


def test_tensors_are_printable_and_say_how_many_there_are():
    text = terminal(print_tensors, TENSORS)
    assert "mtp.\\x1bfc" in text
    assert "and 29 more tensors with 'mtp'" in text
    parsed = json.loads(render_json(TensorsModel.of(TENSORS)))
    assert parsed["shown"][0]["figures"] == {"mean": 0.5}
