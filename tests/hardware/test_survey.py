"""One model on every GPU of the table."""

import pytest

from draftproof.hardware.gpu_choice import find_gpu
from draftproof.hardware.gpu_table import GPUS
from draftproof.hardware.roofline import Deployment, roofline
from draftproof.hardware.state_layout import StateLayout
from draftproof.hardware.survey import survey
from tests.hardware.models import release_as_declared, release_in

LAYOUT = StateLayout(5, 4, 4)


def rows(model, **changes):
    found = survey(model, LAYOUT, changes.pop("draft_tokens", 3), 32_768, **changes)
    return {row.gpu.key: row for row in found}


@pytest.mark.parametrize(
    ("gpu", "ranks"),
    [
        ("rtx-pro-6000", 4),
        ("h200", 2),
        ("h100", 4),
        ("b200", 2),
        ("b300", 1),
        ("rtx-5090", None),
        ("l4", None),
    ],
)
def test_how_many_of_each_hold_the_founding_checkpoint(gpu, ranks):
    row = rows(release_as_declared("nvidia_Qwen3.5-397B-A17B-NVFP4"))[gpu]
    assert row.ranks == ranks
    assert (row.plain is None) == (ranks is None)


def test_every_gpu_of_the_table_has_a_row_and_the_speed_of_its_roofline():
    model = release_in("35B", "NVFP4-V1")
    found = rows(model)
    assert list(found) == [gpu.key for gpu in GPUS]
    line = roofline(model, Deployment(find_gpu("h200")))
    assert found["h200"].plain == line.plain_speed
    assert found["h200"].nextn == line.with_drafts(3).at(3.39)


def test_an_accept_length_is_used_and_no_drafts_are_no_prediction():
    model = release_in("35B", "NVFP4-V1")
    given = rows(model, accept_length=2.0)["h200"]
    assert given.nextn == roofline(model, Deployment(find_gpu("h200"))).with_drafts(3).at(2.0)
    assert rows(model, draft_tokens=0)["h200"].nextn is None
