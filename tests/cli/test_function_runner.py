"""`verify --run`: link 6 on our own engine, with the verdict that the checkpoint deserves."""

import json

import pytest

from draftproof.cli.main import run
from tests.support import faults


@pytest.fixture
def folder(moe_checkpoint, tmp_path):
    return faults.copy_of(moe_checkpoint.folder, tmp_path / "copy")


def verify(folder, capsys, *options):
    code = run(["verify", str(folder), "--run", "--json", *options])
    report = json.loads(capsys.readouterr().out)
    return code, report, {link["link"]: link for link in report["links"]}


def test_a_random_head_is_disproved_although_the_text_is_right(folder, capsys):
    code, report, links = verify(folder, capsys)
    assert (code, report["broken_at"]) == (1, "function")
    verdicts = {item["check"]: item["verdict"] for item in links["function"]["items"]}
    assert verdicts["runs"] == verdicts["drafts-made"] == "proven"
    assert verdicts["same-text-0"] == verdicts["same-text-0.8"] == "proven"
    assert verdicts["drafts-accepted"] == "disproved"


def test_a_checkpoint_that_cannot_be_loaded_disproves_the_link_and_does_not_count(folder, capsys):
    faults.strip_mtp(folder)
    code, report, links = verify(folder, capsys)
    assert (code, report["broken_at"]) == (1, "weights")
    assert links["function"]["counts"] is False
    assert "no mtp.* tensor" in links["function"]["summary"]


def test_a_config_without_a_head_leaves_the_link_unknown(folder, capsys):
    faults.set_config(folder, "text_config.mtp_num_hidden_layers", 0)
    faults.strip_mtp(folder)
    _, _, links = verify(folder, capsys)
    assert links["function"]["verdict"] == "unknown"


def test_a_k_that_cannot_be_is_a_wrong_command(folder, capsys):
    assert run(["verify", str(folder), "--run", "--k", "0"]) == 2
    assert "K" in capsys.readouterr().err
