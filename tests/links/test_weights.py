"""Link 2 as a specification: what is done to a sound checkpoint, and the verdict that it must get.

The table of faults is in `weight_faults.py`. A fault changes its own check; all others stay as they were,
unless its row says which follow.
"""

import subprocess

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.evidence import Verdict
from draftproof.links.value_reading import FULL
from draftproof.links.weights import check_weights
from tests.links.weight_faults import FAULTS, FC, HIDDEN_NORM, KINDS, LAST, NAN, TRUNK
from tests.support.checkpoints import write_checkpoint
from tests.support.faults import (
    copy_of,
    delete_shard,
    drop_tensors,
    fill_tensor,
    protect,
    remove_config,
    reshape_tensor,
    set_config,
    set_element,
    set_exclude_list,
    tensor_names,
)

PROVEN, DISPROVED, UNKNOWN = Verdict.PROVEN, Verdict.DISPROVED, Verdict.UNKNOWN


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Sound checkpoints by kind, each written once and never damaged."""
    root, made = tmp_path_factory.mktemp("weights"), {}

    def make(kind):
        if kind not in made:
            folder = root / kind.replace(" ", "-")
            made[kind] = protect(write_checkpoint(folder, KINDS[kind]).folder)
        return made[kind]

    return make


@pytest.fixture
def damaged(original, tmp_path):
    def make(kind, *faults):
        folder = copy_of(original(kind), tmp_path / "damaged")
        for fault in faults:
            fault(folder)
        return folder

    return make


def check(folder, reading=None):
    return check_weights(open_checkpoint(str(folder)), reading)


def claim(report, name):
    found = [item for item in report.items if item.check == name]
    assert found, f"no claim {name} among {[item.check for item in report.items]}"
    return found[0]


def texts(item):
    """Everything that an item says to a reader."""
    places = [str(place) for place in item.where] + [str(p) for note in item.notes for p in note.where]
    return " | ".join([item.observed, *(note.text for note in item.notes), *places])


# Sound checkpoints.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reading", [None, FULL], ids=["sample", "full"])
def test_every_sound_layout_and_precision_is_proven(original, kind, reading):
    report = check(original(kind), reading)
    assert report.verdict is PROVEN, report.summary


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("dense", "15 of 15 tensors (dense)"),
        ("moe", "41 of 41 tensors (experts one by one)"),
        ("fused head", "19 of 19 tensors (experts fused)"),
        ("next", "41 of 41 tensors (experts one by one)"),
    ],
)
def test_the_head_is_counted_in_its_own_layout(original, kind, words):
    assert claim(check(original(kind)), "head-complete").observed == words


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nvfp4", "MTP head: BF16 (34); target: NVFP4 (ModelOpt) (96), BF16 (40)"),
        ("fp8", "MTP head: FP8 (block scales) (7), BF16 (1)"),
        ("nvfp4 head", "MTP head: NVFP4 (ModelOpt)"),
        ("nvfp4 head dialect", "MTP head: NVFP4 (compressed-tensors)"),
        ("fp8 channel", "FP8 (a scale per row)"),
        ("fp8 tensor", "FP8 (one scale)"),
    ],
)
def test_the_precision_is_read_from_the_tensors(original, kind, words):
    assert words in claim(check(original(kind)), "precision-known").observed


def test_reading_everything_leaves_no_limit(original):
    assert check(original("nvfp4"), FULL).limits == ()
    assert "--full" in check(original("nvfp4")).limits[0]


# Faults.


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.name)
def test_each_fault_has_its_own_verdict_and_is_named(damaged, original, row):
    before = {item.check: item.verdict for item in check(original(row.kind)).items}
    report = check(damaged(row.kind, *row.damage))
    item = claim(report, row.check)
    assert item.verdict is row.verdict, item.observed
    for name in row.names:
        assert name in texts(item)
    assert bool(item.warnings) >= row.warns
    fallen = {
        i.check for i in report.items if before.get(i.check, PROVEN) is PROVEN and i.verdict is not PROVEN
    }
    assert fallen - {row.check} <= row.also


def test_every_fault_disproves_or_warns(damaged):
    assert all(row.verdict is not PROVEN or row.warns for row in FAULTS)


# The rest of what files can show.


def test_the_same_head_is_judged_alike_whatever_the_exclude_list_says(damaged, original):
    with_list = check(original("nvfp4"))
    without = check(damaged("nvfp4", lambda f: set_exclude_list(f, [])))
    words = [claim(report, "precision-known").observed for report in (with_list, without)]
    assert words[0] == words[1]
    assert words[0].startswith("MTP head: BF16")
    assert without.verdict is PROVEN


def test_one_message_for_two_files_that_are_wrong_alike(damaged):
    report = check(damaged("nvfp4", lambda f: set_exclude_list(f, [])))
    about_fc = [n for n in claim(report, "precision-known").warnings if "mtp.fc is BF16" in n.text]
    assert len(about_fc) == 1
    assert about_fc[0].text.startswith("config.json and hf_quant_config.json disagree")


def test_gate_and_up_with_different_global_scales_are_counted(damaged):
    def differ(folder):
        for number in range(8):
            fill_tensor(folder, f"{TRUNK}layers.0.mlp.experts.{number}.gate_proj.weight_scale_2", 0.01)

    notes = claim(check(damaged("nvfp4", differ)), "scales-sane").notes
    assert "gate/up global scale differ in 8/32 pairs" in notes[0].text


def test_a_head_in_four_bits_is_hinted_at(original):
    notes = claim(check(original("nvfp4 head")), "precision-known").notes
    assert any("of the head in 4 bits" in note.text for note in notes)


def test_cache_scales_of_the_target_alone_are_noted(original):
    item = claim(check(original("kv scales")), "scales-there")
    assert any("its cache uses the default 1.0" in note.text for note in item.notes)
    assert not item.warnings


def test_norms_before_the_projection_may_lie_anywhere(damaged):
    def shift(folder):
        fill_tensor(folder, "mtp.pre_fc_norm_embedding.weight", 0.49)
        fill_tensor(folder, HIDDEN_NORM, 0.27)

    report = check(damaged("dense", shift))
    assert report.verdict is PROVEN
    assert not claim(report, "magnitudes-plausible").warnings


def test_a_tower_that_is_missing_as_a_whole_is_a_warning(damaged):
    def strip_vision(folder):
        drop_tensors(folder, *(name for name in tensor_names(folder) if name.startswith("model.visual.")))

    item = claim(check(damaged("dense", strip_vision)), "target-complete")
    assert item.verdict is PROVEN
    assert "serves text only" in item.warnings[0].text


def test_a_head_that_the_config_denies_is_named_as_left_over(damaged):
    report = check(damaged("dense", lambda f: set_config(f, "text_config.mtp_num_hidden_layers", 0)))
    assert "head-complete" not in [item.check for item in report.items]
    assert "mtp.fc.weight" in texts(claim(report, "target-complete"))


def test_only_full_reading_finds_a_fault_outside_the_sample(damaged):
    # More layers' worth of experts than the sample takes: expert 5 of layer 1 is in none of its four members.
    name = f"{TRUNK}layers.1.mlp.experts.5.up_proj.weight_scale"
    folder = damaged("nvfp4", lambda f: set_element(f, name, NAN))
    assert check(folder).verdict is PROVEN
    assert claim(check(folder, FULL), "scales-sane").verdict is DISPROVED


def test_weights_in_another_format_are_unknown(damaged):
    def convert(folder):
        for path in folder.glob("*.safetensors"):
            path.rename(path.with_suffix(".bin"))

    report = check(damaged("single", convert))
    assert claim(report, "files-there").verdict is UNKNOWN
    assert (
        ".bin" in claim(report, "files-there").reason or "model.bin" in claim(report, "files-there").observed
    )


def test_an_unusable_config_leaves_the_weights_unknown(damaged):
    report = check(damaged("dense", lambda f: remove_config(f, "text_config.hidden_size")))
    item = claim(report, "head-complete")
    assert item.verdict is UNKNOWN
    assert "text_config.hidden_size" in item.reason


@pytest.mark.parametrize("name", ["head-complete", "shapes-right", "values-alive", "precision-known"])
def test_the_command_beside_a_claim_shows_the_tensor(damaged, name):
    faults = {
        "head-complete": lambda f: drop_tensors(f, HIDDEN_NORM),
        "shapes-right": lambda f: reshape_tensor(f, FC, (64, 64)),
        "values-alive": lambda f: fill_tensor(f, FC, 0.0),
        "precision-known": lambda f: None,
    }
    item = claim(check(damaged("single", faults[name])), name)
    if item.command.startswith("draftproof "):
        assert FC in item.command
        return
    finished = subprocess.run(
        ["bash", "-c", item.command], capture_output=True, text=True, timeout=30, check=True
    )
    assert ("mtp." in finished.stdout) is (name != "head-complete")


def test_what_is_said_of_the_index_counts_only_what_was_read(original, damaged):
    report = check(damaged("dense", lambda f: delete_shard(f, LAST)))
    everything = open_checkpoint(str(original("dense"))).inventory.tensors.values()
    lost = sum(entry.file == LAST for entry in everything)
    said = f"{len(everything) - lost} tensors where the index says"
    assert claim(report, "index-agrees").observed == (
        f"{said}; the files of {lost} more are missing or unreadable"
    )
    assert "readable" in claim(report, "files-whole").observed


def test_a_shard_that_is_a_link_out_of_the_folder_is_said_once(damaged, tmp_path):
    def link(folder):
        (folder / LAST).unlink()
        (folder / LAST).symlink_to("/etc/hostname")

    item = claim(check(damaged("dense", link)), "files-there")
    assert item.verdict is UNKNOWN
    assert item.observed.count("leaves the folder") == 1
    assert "not there" not in item.observed


def test_nothing_is_proven_about_files_that_are_not_there(damaged):
    def empty(folder):
        for path in (*folder.glob("*.safetensors"), *folder.glob("*.index.json")):
            path.unlink()

    report = check(damaged("dense", empty))
    assert report.verdict is DISPROVED
    checks = {item.check for item in report.items}
    assert not checks & {"files-whole", "shapes-right", "precision-known"}
