"""Link 3 from what a stack's rules found: each reading becomes a claim with its lines and a command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from draftproof.evidence import EvidenceItem, Verdict, combine
from draftproof.links.code import code_items
from draftproof.stacks.code_facts import (
    Fate,
    HeadSupport,
    Noticing,
    TensorLanding,
    UnwrittenParameter,
)
from draftproof.stacks.defect import Defect, DefectFinding, DefectLink, Harm
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint

ROOT = Path("/stacks/some tree")
PLACE = Place("stack/models/head.py", 12)
CHECKPOINT = ServedCheckpoint("owner/name", {"architectures": ["Target"]}, None, None, {}, {})


def landing(
    name: str = "mtp.fc.weight", fate: Fate = Fate.LANDS, stored: str = "BF16", built: str = "BF16"
) -> TensorLanding:
    parameter = name.replace("mtp.", "model.") if fate is Fate.LANDS else ""
    return TensorLanding(name, 1, fate, parameter, "", stored, built, (PLACE,), fate.value)


SOUND = HeadSupport(
    target=found("Target", "Target is registered", PLACE),
    draft_architecture=found("Head", "Target becomes Head", PLACE),
    draft_class=found("Head", "Head is in head.py", PLACE),
    registration=found("Head", "Head is registered", PLACE),
    implementation=found("Head", "Head does something", PLACE),
    head_precision=found("BF16", "built in BF16", PLACE),
    landings=found((landing(),), "followed", PLACE),
    unwritten=found((), "every parameter is written", PLACE),
    noticing=found(Noticing.ERROR, "a missing tensor stops the start", PLACE),
    defects=(),
)


def items(support: HeadSupport) -> dict[str, EvidenceItem]:
    return {item.check: item for item in code_items(ROOT, CHECKPOINT, support)}


def verdict(support: HeadSupport) -> Verdict:
    return combine(item.verdict for item in items(support).values())


def defect(harm: Harm = Harm.BREAKS, link: DefectLink = DefectLink.CODE) -> Defect:
    return Defect(
        "the-defect",
        link,
        harm,
        "Something is wrong",
        "owner/stack#1",
        ("1.0",),
        "a line",
        lambda tree: found(True, "there", PLACE),
        lambda checkpoint, situation: True,
        "it stops",
        "do it otherwise",
    )


def finding(present: Reading[bool], applies: bool = True, harm: Harm = Harm.BREAKS) -> DefectFinding:
    return DefectFinding(defect(harm), present, applies)


PRESENT: Reading[bool] = found(True, "it is in line 12", PLACE)
REPAIRED: Reading[bool] = found(False, "line 12 is sound", PLACE)
OTHER_FORM: Reading[bool] = not_understood("looked for line 12")


def test_a_sound_head_is_proven_and_every_claim_shows_its_lines() -> None:
    assert verdict(SOUND) is Verdict.PROVEN
    for item in items(SOUND).values():
        assert item.where
        assert item.where[0].line == 12
        assert item.command.startswith("sed -n '12,23p' '/stacks/some tree/stack/models/head.py'")


@pytest.mark.parametrize(
    ("field", "check"),
    [
        ("target", "target-known"),
        ("draft_architecture", "draft-mapped"),
        ("draft_class", "draft-class"),
        ("registration", "draft-class-registered"),
        ("implementation", "draft-implemented"),
    ],
)
def test_what_is_not_there_disproves_and_what_is_not_understood_stays_open(field: str, check: str) -> None:
    gone = items(replace(SOUND, **{field: absent("looked and not there", PLACE)}))[check]
    assert gone.verdict is Verdict.DISPROVED
    assert gone.observed == "looked and not there"
    other = items(replace(SOUND, **{field: not_understood("looked for X in Y", PLACE)}))[check]
    assert other.verdict is Verdict.UNKNOWN
    assert other.reason == "looked for X in Y"


@pytest.mark.parametrize(
    ("lost", "word"),
    [
        (landing("mtp.a.weight", Fate.SKIPPED_SILENTLY), "without a word"),
        (landing("mtp.a.weight", Fate.SKIPPED_WITH_LOG), "logged"),
        (landing("mtp.a.weight", Fate.REFUSED), "stops the start"),
        (landing("mtp.a.weight", built="NVFP4 (ModelOpt)"), "built for NVFP4 (ModelOpt)"),
        (landing("mtp.a.weight", stored="NVFP4 (ModelOpt)"), "stored in NVFP4 (ModelOpt)"),
    ],
)
def test_a_tensor_that_is_lost_or_misread_disproves(lost: TensorLanding, word: str) -> None:
    item = items(replace(SOUND, landings=found((landing(), lost), "followed", PLACE)))["tensors-land"]
    assert item.verdict is Verdict.DISPROVED
    assert "mtp.a.weight" in item.observed
    assert "mtp.fc.weight" not in item.observed
    assert word in item.observed


def test_plain_precisions_are_converted() -> None:
    support = replace(SOUND, landings=found((landing(stored="FP32"),), "followed", PLACE))
    assert items(support)["tensors-land"].verdict is Verdict.PROVEN


def test_shared_tensors_and_layers_that_are_not_run_do_not_disprove() -> None:
    tensors = (landing(), landing("embed", Fate.SHARED), landing("mtp.1.fc", Fate.LEFT_OUT))
    item = items(replace(SOUND, landings=found(tensors, "followed", PLACE)))["tensors-land"]
    assert item.verdict is Verdict.PROVEN
    assert "1 of them replaced" in item.observed
    assert "mtp.1.fc" in item.warnings[0].text


def test_a_tensor_that_could_not_be_followed_leaves_it_open() -> None:
    tensors = (landing(), landing("mtp.a", Fate.NOT_UNDERSTOOD))
    item = items(replace(SOUND, landings=found(tensors, "followed", PLACE)))["tensors-land"]
    assert item.verdict is Verdict.UNKNOWN
    assert "mtp.a" in item.reason


def test_a_checkpoint_without_a_head_leaves_it_open() -> None:
    item = items(replace(SOUND, landings=found((), "nothing", PLACE)))["tensors-land"]
    assert item.verdict is Verdict.UNKNOWN


def test_tensors_that_only_a_config_promises_decide_nothing() -> None:
    promised = replace(CHECKPOINT, from_files=False)
    for fate in (Fate.LANDS, Fate.REFUSED):
        support = replace(SOUND, landings=found((landing("mtp.a", fate),), "followed", PLACE))
        made = {item.check: item for item in code_items(ROOT, promised, support)}
        for check in ("tensors-land", "parameters-written"):
            assert made[check].verdict is Verdict.UNKNOWN
            assert made[check].reason.startswith("there are no weight files")
            assert made[check].where


def test_an_unwritten_parameter_disproves_and_is_named() -> None:
    unwritten = (UnwrittenParameter("model.fc.weight", Place("stack/models/head.py", 40)),)
    item = items(replace(SOUND, unwritten=found(unwritten, "one is left", PLACE)))["parameters-written"]
    assert item.verdict is Verdict.DISPROVED
    assert "model.fc.weight" in item.observed
    assert item.where[0].line == 40


@pytest.mark.parametrize("noticing", [Noticing.NOTHING, Noticing.WARNING])
def test_a_stack_that_would_not_notice_is_warned_of(noticing: Noticing) -> None:
    item = items(replace(SOUND, noticing=found(noticing, "nobody looks", PLACE)))["parameters-written"]
    assert item.verdict is Verdict.PROVEN
    assert "nobody looks" in item.warnings[0].text
    assert item.warnings[0].where[0].line == 12


def test_a_stack_that_would_stop_is_not_warned_of() -> None:
    assert not items(SOUND)["parameters-written"].warnings


@pytest.mark.parametrize(
    ("present", "applies", "harm", "expected"),
    [
        (PRESENT, True, Harm.BREAKS, Verdict.DISPROVED),
        (OTHER_FORM, True, Harm.BREAKS, Verdict.UNKNOWN),
        (REPAIRED, True, Harm.BREAKS, Verdict.PROVEN),
        (PRESENT, False, Harm.BREAKS, Verdict.PROVEN),
        (OTHER_FORM, False, Harm.BREAKS, Verdict.PROVEN),
        (PRESENT, True, Harm.WEAKENS, Verdict.PROVEN),
        (OTHER_FORM, True, Harm.WEAKENS, Verdict.PROVEN),
    ],
)
def test_a_defect_counts_when_it_is_there_and_applies(
    present: Reading[bool], applies: bool, harm: Harm, expected: Verdict
) -> None:
    support = replace(SOUND, defects=(finding(present, applies, harm),))
    assert verdict(support) is expected


def test_a_breaking_defect_names_consequence_and_workaround() -> None:
    item = items(replace(SOUND, defects=(finding(PRESENT),)))["defect-the-defect"]
    assert "it stops" in item.observed
    assert "owner/stack#1" in item.claim
    assert "do it otherwise" in item.notes[0].text


def test_a_weakening_defect_warns() -> None:
    item = items(replace(SOUND, defects=(finding(PRESENT, harm=Harm.WEAKENS),)))["known-defects"]
    assert "it stops" in item.warnings[0].text


def test_defects_of_other_links_are_not_claimed_here() -> None:
    other = DefectFinding(defect(link=DefectLink.LAUNCH), PRESENT, True)
    assert set(items(replace(SOUND, defects=(other,)))) == set(items(SOUND))


def test_a_note_about_a_defect_shows_its_own_lines() -> None:
    elsewhere = found(True, "it is in line 40", Place("stack/loader.py", 40))
    defects = (finding(PRESENT, harm=Harm.WEAKENS), finding(elsewhere, harm=Harm.WEAKENS))
    first, second = items(replace(SOUND, defects=defects))["known-defects"].warnings
    assert first.command == "sed -n '12,23p' '/stacks/some tree/stack/models/head.py'"
    assert second.command == "sed -n '40,51p' '/stacks/some tree/stack/loader.py'"


def test_a_note_about_unwritten_parameters_shows_its_own_lines() -> None:
    quiet = found(Noticing.NOTHING, "nobody looks", Place("stack/loader.py", 7))
    (note,) = items(replace(SOUND, noticing=quiet))["parameters-written"].warnings
    assert note.command == "sed -n '7,18p' '/stacks/some tree/stack/loader.py'"
