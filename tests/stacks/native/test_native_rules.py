"""draftproof's own engine as a stack: read from its source, and honest about what it does not have."""

from dataclasses import replace

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.evidence import Verdict
from draftproof.hardware.gpu_choice import find_gpu
from draftproof.kernels.backend_rules import load_table, rules_in_words
from draftproof.links.backend import check_backend
from draftproof.links.backend_subject import stack_kernels
from draftproof.links.code import check_code
from draftproof.links.launch import judged_launch
from draftproof.links.served import served_checkpoint
from draftproof.stacks.code_facts import Fate, Noticing
from draftproof.stacks.known import rules_for
from draftproof.stacks.native.rules import NativeRules
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import StackKind
from tests.support.checkpoint_options import CheckpointOptions
from tests.support.checkpoint_precision import ALL_PRECISIONS
from tests.support.own_stack import FUSED, ONE_BY_ONE, RULES, claims, own, release
from tests.support.public_configs import public_config_files


def support(checkpoint, stack=None):
    return RULES.head_support(stack or own(), checkpoint, Situation())


# Link 3.


def test_the_rules_are_found_by_the_stacks_name():
    assert isinstance(rules_for(StackKind.NATIVE), NativeRules)


@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        ("nvidia_Qwen3.5-397B-A17B-NVFP4", ONE_BY_ONE),
        ("Qwen_Qwen3.6-35B-A3B", FUSED),
        ("Qwen_Qwen3.6-35B-A3B-FP8", ONE_BY_ONE),
        ("Qwen_Qwen3.5-9B", ONE_BY_ONE),
        ("Qwen_Qwen3-Next-80B-A3B-Instruct", ONE_BY_ONE),
        ("Qwen_Qwen3.8-2.4T-A95B-FP8", ONE_BY_ONE),
    ],
)
def test_every_release_that_is_run_has_a_place_for_every_tensor_of_its_head(name, layouts):
    report = check_code(replace(release(name, layouts), from_files=True), own(), RULES)
    assert report.verdict is Verdict.PROVEN, report.summary
    assert all(item.where for item in report.items)


@pytest.mark.parametrize("precision", ALL_PRECISIONS, ids=lambda precision: precision.name)
def test_what_the_loader_loads_is_what_link_3_says(checkpoint, precision):
    """Checkpoints that the engine's own tests load, in every precision."""
    written = checkpoint(CheckpointOptions(moe=True, precision=precision))
    found = support(served_checkpoint(open_checkpoint(str(written.folder))))
    assert found.landings.value
    assert {landing.fate for landing in found.landings.value} <= {Fate.LANDS, Fate.LEFT_OUT}
    assert found.unwritten.value == ()
    left_out = {each.tensor for each in found.landings.value if each.fate is Fate.LEFT_OUT}
    assert all(name.endswith(("input_scale", "input_global_scale")) for name in left_out)


def test_a_foreign_tensor_stops_the_start():
    served = release("Qwen_Qwen3.5-9B")
    extra = dict(served.head)
    extra["mtp.layers.0.extra_proj.weight"] = extra["mtp.fc.weight"]
    found = support(ServedCheckpoint(served.name, served.config, None, served.spec, extra, served.trunk))
    refused = [landing for landing in found.landings.value or () if landing.fate is Fate.REFUSED]
    assert [landing.tensor for landing in refused] == ["mtp.layers.0.extra_proj.weight"]
    assert refused[0].places[0].file == "draftproof/models/account.py"


def test_a_missing_tensor_is_an_unwritten_parameter_that_is_noticed():
    served = release("Qwen_Qwen3.5-9B")
    fewer = {
        name: tensor for name, tensor in served.head.items() if name != "mtp.layers.0.mlp.up_proj.weight"
    }
    found = support(ServedCheckpoint(served.name, served.config, None, served.spec, fewer, served.trunk))
    assert [each.name for each in found.unwritten.value or ()] == ["mtp.layers.{n}.mlp.up_proj.weight"]
    assert found.noticing.value is Noticing.ERROR


@pytest.mark.parametrize(
    ("leaf", "others"),
    [
        (("qweight", "I32"), [("qzeros", "I32"), ("scales", "F16")]),
        (("weight", "U8"), [("weight_scale", "U8")]),
    ],
    ids=["GPTQ", "MXFP4"],
)
def test_a_precision_that_is_only_recognised_is_refused(leaf, others):
    served = release("Qwen_Qwen3.5-9B")
    packed = dict(served.head)
    old = packed.pop("mtp.layers.0.mlp.up_proj.weight")
    for part, dtype in (leaf, *others):
        name = f"mtp.layers.0.mlp.up_proj.{part}"
        packed[name] = type(old)(name, (32, 64 if part != "weight_scale" else 4), dtype)
    found = support(ServedCheckpoint(served.name, served.config, None, served.spec, packed, served.trunk))
    refused = [landing.tensor for landing in found.landings.value or () if landing.fate is Fate.REFUSED]
    assert f"mtp.layers.0.mlp.up_proj.{leaf[0]}" in refused


def test_an_architecture_that_is_not_run_has_no_class():
    files = public_config_files("deepseek-ai_DeepSeek-R1")
    stranger = ServedCheckpoint("r1", files.config.content, None, None, {}, {}, False)
    report = check_code(stranger, own(), RULES)
    assert report.verdict is Verdict.DISPROVED
    assert claims(report)["target-known"].verdict is Verdict.DISPROVED
    assert "DeepseekV3ForCausalLM is none of" in claims(report)["target-known"].observed


# A changed source breaks the right claim, with its line.


@pytest.mark.parametrize(
    ("file", "old", "new", "check", "verdict"),
    [
        (
            "draftproof/models/qwen3_5_mtp.py",
            "return self.target.logits(hidden)",
            "raise NotImplementedError",
            "draft-implemented",
            Verdict.DISPROVED,
        ),
        (
            "draftproof/models/qwen3_5_mtp.py",
            "class MtpHead:",
            "class OtherHead:",
            "draft-class",
            Verdict.DISPROVED,
        ),
        (
            "draftproof/architecture/qwen3_5.py",
            '"Qwen3_5ForConditionalGeneration": _Release(nested=True, moe=False),',
            "",
            "target-known",
            Verdict.DISPROVED,
        ),
        (
            "draftproof/engine/build.py",
            "drafter = NextnDrafter(loaded.head, store)",
            "pass",
            "draft-class-registered",
            Verdict.DISPROVED,
        ),
        (
            "draftproof/models/loading.py",
            'self._linear(f"{prefix}o_proj"',
            'self._linear(f"{prefix}out_proj"',
            "tensors-land",
            Verdict.DISPROVED,
        ),
        (
            "draftproof/models/loading.py",
            'self._norm("mtp.pre_fc_norm_hidden.weight", hidden)',
            'self._norm("mtp.norm_of_hidden.weight", hidden)',
            "parameters-written",
            Verdict.DISPROVED,
        ),
        (
            "draftproof/models/loading.py",
            "def head(self, target",
            "def other_head(self, target",
            "tensors-land",
            Verdict.UNKNOWN,
        ),
        (
            "draftproof/architecture/qwen3_5.py",
            "ARCHITECTURES: Mapping[str, _Release] = {",
            "ARCHITECTURES: Mapping[str, _Release] = dict() or {",
            "target-known",
            Verdict.UNKNOWN,
        ),
    ],
)
def test_a_changed_source_breaks_the_right_claim(changed, file, old, new, check, verdict):
    stored = replace(release("Qwen_Qwen3.5-9B"), from_files=True)
    report = check_code(stored, changed(file, old, new), RULES)
    item = claims(report)[check]
    assert item.verdict is verdict, item.observed
    if verdict is Verdict.UNKNOWN:
        assert "looked for" in item.reason


def test_an_account_that_does_not_stop_the_start_is_noticed(changed):
    stack = changed("draftproof/models/loading.py", "account.close()", "account.report()")
    assert support(release("Qwen_Qwen3.5-9B"), stack).noticing.value is Noticing.NOTHING


# Link 5.


def backend(name="Qwen_Qwen3.6-35B-A3B-FP8", stack=None, gpu="h200"):
    served, situation = release(name), Situation(find_gpu(gpu))
    stack = stack or own()
    launch = judged_launch(stack, RULES, served, situation, None)
    kernels = stack_kernels(stack, RULES, served, situation, launch.judgement)
    return check_backend(served, situation, kernels)


def kernels_of(report):
    return [item for item in report.items if item.check.startswith("kernel-")]


def test_kernels_are_those_of_the_table_that_the_engine_reads():
    kernels = kernels_of(backend())
    # Without files the head's precision is a promise, so its kernels stay open.
    trunk = [item for item in kernels if "of-the-mtp-head" not in item.check]
    assert {item.verdict for item in trunk} == {Verdict.PROVEN}
    table = load_table(90)
    experts = next(item for item in kernels if item.check == "kernel-expert-gemm-routed-experts")
    assert rules_in_words(table.of("experts_step")) in experts.observed
    assert f"timed on {table.tested}" in experts.observed
    assert experts.where[0].file == "draftproof/kernels/tuning/sm90.toml"


def test_kernels_that_nobody_ran_on_such_a_gpu_are_open():
    report = backend(gpu="rtx-pro-6000")
    kernels = kernels_of(report)
    assert kernels
    assert {item.verdict for item in kernels} == {Verdict.UNKNOWN}
    assert all("nobody has run on SM120" in item.reason for item in kernels)
    assert report.verdict is Verdict.UNKNOWN


def test_a_version_without_tables_has_plain_torch_and_proves_nothing(changed):
    stack = changed("draftproof/kernels/tuning/sm90.toml", "backend", "engine")
    kernels = kernels_of(backend(stack=stack))
    assert {item.verdict for item in kernels} == {Verdict.UNKNOWN}
    assert all("draftproof doctor" in item.reason for item in kernels)


def test_quantised_weights_that_are_converted_are_a_warning_where_the_gpu_could_multiply_them():
    item = next(item for item in backend().items if item.check == "kernel-expert-gemm-routed-experts")
    assert any("converts the weights" in note.text for note in item.warnings)


def test_a_precision_that_is_not_loaded_is_disproved():
    report = backend("Qwen_Qwen3.5-35B-A3B-GPTQ-Int4")
    assert report.verdict is Verdict.DISPROVED


def test_one_state_and_the_rows_of_a_window():
    item = claims(backend())["sequences-fit"]
    assert item.verdict is Verdict.PROVEN
    assert "the inputs of 4 rows for replay" in item.notes[0].text
    assert item.where[0].file == "draftproof/runtime/state_store.py"


def test_a_state_of_another_form_is_open(changed):
    stack = changed("draftproof/runtime/state_store.py", "stash_beta=zeros", "stash_gate=zeros")
    item = claims(backend(stack=stack))["sequences-fit"]
    assert "looked for a RecurrentState" in item.notes[0].text
