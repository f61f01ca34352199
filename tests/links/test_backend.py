"""Link 5 as a specification: what is known of a GPU and a stack, and the verdict that follows."""

from dataclasses import replace

import pytest

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.evidence import Severity, Verdict
from draftproof.hardware.gpu_choice import GpuOptions, choose_gpu, find_gpu
from draftproof.hardware.state_layout import StateLayout
from draftproof.links.backend import check_backend
from draftproof.links.backend_subject import StackKernels
from draftproof.stacks.backend_facts import BackendFacts, KernelChoice, Operation, Phase
from draftproof.stacks.defect import Defect, DefectFinding, DefectLink, Harm
from draftproof.stacks.launch_facts import Requirement, ResolvedLaunch
from draftproof.stacks.place import Place
from draftproof.stacks.reading import absent, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack, StackKind
from tests.support.faults import copy_of
from tests.support.public_configs import public_config_files

PROVEN, DISPROVED, UNKNOWN = Verdict.PROVEN, Verdict.DISPROVED, Verdict.UNKNOWN
SELECTOR, GATE = Place("sglang/srt/select.py", 17), Place("sglang/srt/gate.py", 4)
FIVE_SLOTS = found(StateLayout(5, 4, 4), "five slots and four states for drafts", Place("sglang/pool.py", 9))
BIG = "nvidia_Qwen3.5-397B-A17B-NVFP4"


def served(name=BIG):
    """A release of which only the config is known."""
    files = public_config_files(name)
    spec = spec_from_config(files)
    return ServedCheckpoint(name, files.config.content, files.hf_quant_config.content, spec, {}, {}, False)


def choice(**changes):
    sound = KernelChoice(
        operation=Operation.EXPERT_GEMM,
        group="routed experts",
        precision="NVFP4 (ModelOpt)",
        phase=Phase.ANY,
        backend=found("flashinfer_cutlass", "chosen for SM120", SELECTOR),
        valid=found(True, "admits SM120", GATE),
        native=True,
    )
    return replace(sound, **changes)


def facts(*choices, **changes):
    return replace(BackendFacts(choices or (choice(),), FIVE_SLOTS), **changes)


@pytest.fixture
def kernels(tmp_path):
    """A stack with what its rules found."""
    stack = Stack(StackKind.SGLANG, "0.5.23", SourceTree(tmp_path), "made for a test")

    def make(found_facts=None, resolved=None):
        return StackKernels(stack, found_facts or facts(), resolved)

    return make


def situation(gpu="rtx-pro-6000", ranks=8, **changes):
    return Situation(find_gpu(gpu), ranks, **changes)


def claims(report):
    return {item.check: item for item in report.items}


def texts(item):
    cells = (cell for table in item.tables for row in table.rows for cell in row)
    titles = (table.title for table in item.tables)
    return " | ".join([item.observed, item.reason, *(note.text for note in item.notes), *titles, *cells])


# The founding checkpoint on the founding hardware.


def test_everything_known_and_sound_is_proven(kernels):
    report = check_backend(served(), situation(), kernels())
    assert report.verdict is PROVEN
    assert report.link.value == "backend"
    assert set(claims(report)) >= {
        "gpu-known",
        "kernel-expert-gemm-routed-experts",
        "attention-heads-divide",
        "weights-fit",
        "sequences-fit",
        "roofline",
    }


def test_72_tokens_a_second_are_a_share_and_a_list_of_suspects(kernels):
    item = claims(check_backend(served(), situation(measured=72.0), kernels()))["measured-speed"]
    assert item.verdict is PROVEN
    assert "12% of the bound of plain decoding" in item.observed
    assert "7% of the bound of NEXTN with K=3" in item.observed
    suspects = [note.text for note in item.notes if note.severity is Severity.WARN]
    assert suspects[0].startswith("suspect 1: the head drafts and nothing is accepted")
    assert any("the MTP head is not active" in text for text in suspects)
    assert all("Check:" in text for text in suspects)


@pytest.mark.parametrize(("native", "suspected"), [(True, False), (False, True), (None, True)])
def test_kernels_that_use_the_gpus_units_clear_a_suspect(kernels, native, suspected):
    place = situation(measured=200.0)
    item = claims(check_backend(served(), place, kernels(facts(choice(native=native)))))["measured-speed"]
    assert any("4-bit weights are converted" in note.text for note in item.notes) == suspected


def test_more_than_bandwidth_allows_is_disproved(kernels):
    item = claims(check_backend(served(), situation(measured=9_999.0), kernels()))["measured-speed"]
    assert item.verdict is DISPROVED
    assert "times the bound" in item.observed


def test_an_ordinary_speed_has_no_suspects(kernels):
    item = claims(check_backend(served(), situation(measured=290.0), kernels()))["measured-speed"]
    assert item.verdict is PROVEN
    assert item.notes == ()


def test_a_roofline_names_its_assumptions(kernels):
    item = claims(check_backend(served(), situation(), kernels()))["roofline"]
    text = texts(item)
    assert "vendor data sheet" in text
    assert "30 microseconds (assumed" in text
    assert "accept length 3.39 is one to plan with" in text
    assert "K=1" in text
    assert "K=5" in text


def test_a_given_accept_length_is_used_and_stays_in_the_window(kernels):
    item = claims(check_backend(served(), situation(accept_length=2.5), kernels()))["roofline"]
    assert "accept length 2.50" in item.observed
    assert "to plan with" not in texts(item)
    wide = claims(check_backend(served(), situation(accept_length=99.0, draft_tokens=1), kernels()))[
        "roofline"
    ]
    assert "K=1 at accept length 2.00" in wide.observed


def test_speculation_that_cannot_pay_is_a_warning(kernels):
    """397B in BF16: four rows read more experts than two tokens are worth."""
    place = situation("h200", 8, accept_length=1.2)
    item = claims(check_backend(served("Qwen_Qwen3.5-397B-A17B"), place, kernels()))["roofline"]
    assert any("not expected to be faster" in note.text for note in item.warnings)


# What is not known stays open.


def test_without_a_gpu_only_the_divisions_are_made(kernels):
    report = check_backend(served(), Situation(tensor_parallel=8), kernels())
    found_claims = claims(report)
    assert report.verdict is UNKNOWN
    assert found_claims["gpu-known"].verdict is UNKNOWN
    assert "--gpu NAME" in found_claims["gpu-known"].reason
    assert found_claims["kernels-chosen"].verdict is UNKNOWN
    assert found_claims["attention-heads-divide"].verdict is PROVEN
    assert "weights-fit" not in found_claims
    rows = [note.text for note in found_claims["gpu-known"].notes]
    assert any(text.startswith("4 x RTX PRO 6000 Blackwell Workstation (--gpu rtx-pro-6000") for text in rows)
    assert any(text.startswith("2 x H200 SXM") and "NEXTN with K=3 at most" in text for text in rows)


def test_without_a_stack_the_kernels_are_open():
    report = check_backend(served(), situation())
    assert claims(report)["kernels-chosen"].verdict is UNKNOWN
    assert "no serving stack was named" in claims(report)["kernels-chosen"].reason
    assert claims(report)["weights-fit"].verdict is PROVEN


def test_a_stack_whose_rules_found_nothing_is_open(kernels):
    empty = BackendFacts((), not_understood("the backend part of this stack is not read yet"))
    found_claims = claims(check_backend(served(), situation(), kernels(empty)))
    assert found_claims["kernels-chosen"].verdict is UNKNOWN
    assert "SGLang 0.5.23" in found_claims["kernels-chosen"].reason


@pytest.mark.parametrize(
    ("changes", "verdict", "part"),
    [
        ({}, PROVEN, "admits SM120"),
        ({"valid": found(False, "needs SM100", GATE)}, DISPROVED, "needs SM100"),
        ({"valid": not_understood("no gate of a known form", GATE)}, UNKNOWN, "no gate of a known form"),
        ({"valid": absent("no gate at all", GATE)}, UNKNOWN, "no gate at all"),
        ({"backend": not_understood("no selector in select.py", SELECTOR)}, UNKNOWN, "no selector"),
    ],
)
def test_a_kernel_is_judged_by_its_own_conditions(kernels, changes, verdict, part):
    item = claims(check_backend(served(), situation(), kernels(facts(choice(**changes)))))[
        "kernel-expert-gemm-routed-experts"
    ]
    assert item.verdict is verdict
    assert part in texts(item)
    assert [str(place) for place in item.where][:1] == ["sglang/srt/select.py:17"]
    assert "sed -n '17,28p'" in item.command


@pytest.mark.parametrize(
    ("gpu", "severity"), [("rtx-pro-6000", Severity.WARN), ("h200", Severity.INFO)], ids=["able", "not able"]
)
def test_weights_that_are_converted_first_warn_where_the_gpu_could_do_better(kernels, gpu, severity):
    marlin = choice(
        native=False, backend=found("marlin", "the fallback", SELECTOR), explicit="--moe-backend x"
    )
    item = claims(check_backend(served(), situation(gpu), kernels(facts(marlin))))[
        "kernel-expert-gemm-routed-experts"
    ]
    assert item.notes[0].severity is severity
    assert "marlin converts the weights" in item.notes[0].text
    assert "--moe-backend x" in texts(item)


def test_phases_of_one_operation_are_claims_of_their_own(kernels):
    both = [
        choice(operation=Operation.GATED_DELTA_NET, group="mixers", precision="", phase=phase)
        for phase in (Phase.PREFILL, Phase.VERIFY)
    ]
    checks = set(claims(check_backend(served(), situation(), kernels(facts(*both)))))
    assert {"kernel-gated-deltanet-mixers-prefill", "kernel-gated-deltanet-mixers-verify"} <= checks


# Requirements and defects.


def need(present):
    return Requirement(
        "flashinfer-python", ">=0.6", "the kernel is in it", present, "pip install it", (SELECTOR,)
    )


@pytest.mark.parametrize(("present", "verdict"), [(True, PROVEN), (False, DISPROVED)])
def test_what_must_be_installed(kernels, present, verdict):
    report = check_backend(served(), situation(), kernels(facts(requirements=(need(present),))))
    item = claims(report)["requirements-present"]
    assert item.verdict is verdict
    assert "flashinfer-python >=0.6" in item.expected


def test_what_could_not_be_looked_for_is_a_limit_of_the_report(kernels):
    report = check_backend(served(), situation(), kernels(facts(choice(needs=(need(None), need(None))))))
    assert "requirements-present" not in claims(report)
    assert report.limits[0] == "that flashinfer-python will be installed where it is served"


def test_a_defect_of_this_link_breaks_it(kernels):
    defect = Defect(
        "sm120-moe",
        DefectLink.BACKEND,
        Harm.BREAKS,
        "automatic choice picks a kernel of SM100",
        "example/example#1",
        ("0.5.23",),
        "a comparison",
        lambda tree: found(True, "it is there", SELECTOR),
        lambda checkpoint, place: True,
        "the start fails",
        "--quantization modelopt_fp4",
    )
    finding = DefectFinding(defect, found(True, "it is there", SELECTOR), True)
    report = check_backend(served(), situation(), kernels(facts(defects=(finding,))))
    assert claims(report)["defect-sm120-moe"].verdict is DISPROVED


# Memory.


def test_too_few_gpus_are_a_shortfall_and_the_number_that_would_do(kernels):
    report = check_backend(served(), situation(ranks=2), kernels())
    item = claims(report)["weights-fit"]
    assert item.verdict is DISPROVED
    assert "27.04 GB too much; it fits 4 GPUs of this kind (--tp 4)" in item.observed
    assert "sequences-fit" not in claims(report)


def test_too_many_sequences_are_a_shortfall(kernels):
    item = claims(check_backend(served(), situation(ranks=4, concurrency=80), kernels()))["sequences-fit"]
    assert item.verdict is DISPROVED
    assert "short" in item.observed
    assert "--tp" in item.observed


def test_what_depends_on_an_unread_state_layout_is_open(kernels):
    open_layout = facts(state_layout=not_understood("no pool of a known form"))
    count = 50
    item = claims(check_backend(served(), situation(ranks=4, concurrency=count), kernels(open_layout)))[
        "sequences-fit"
    ]
    assert item.verdict is UNKNOWN
    assert "no pool of a known form" in item.reason
    few = claims(check_backend(served(), situation(ranks=4), kernels(open_layout)))["sequences-fit"]
    assert few.verdict is PROVEN


def test_the_state_layout_is_shown_with_its_line(kernels):
    item = claims(check_backend(served(), situation(), kernels()))["sequences-fit"]
    assert "sglang/pool.py:9" in [str(place) for place in item.where]
    assert "all 262,144 positions" in item.observed


def test_an_fp8_cache_of_the_command_halves_keys_and_values(kernels):
    def each_token(resolved):
        item = claims(check_backend(served(), situation(), kernels(resolved=resolved)))["sequences-fit"]
        return "16.38 kB for each token" in item.observed, "8.19 kB for each token" in item.observed

    unknown = not_understood("not judged")
    assert each_token(None) == (True, False)
    fp8 = ResolvedLaunch(unknown, unknown, unknown, (("--kv-cache-dtype", "fp8_e4m3", "given"),))
    assert each_token(fp8) == (False, True)


def test_the_k_of_the_command_counts(kernels):
    unknown = not_understood("not judged")
    resolved = ResolvedLaunch(unknown, found(5, "as given"), unknown)
    item = claims(check_backend(served(), situation(), kernels(resolved=resolved)))["roofline"]
    assert "NEXTN with K=5" in item.observed


# Divisions.


def test_three_gpus_do_not_divide_the_heads(kernels):
    found_claims = claims(check_backend(served(), situation(ranks=3), kernels()))
    item = found_claims["attention-heads-divide"]
    assert item.verdict is DISPROVED
    assert str(item.where[0]) == "config.json: text_config.num_attention_heads"
    assert "1, 2, 4, 8, 16" in texts(item)


def test_one_gpu_has_nothing_to_divide(kernels):
    report = check_backend(served("Qwen_Qwen3.6-35B-A3B"), situation("h200", 1), kernels())
    assert claims(report)["tensor-parallel-divides"].verdict is PROVEN


# Checkpoints of all kinds.


def test_sizes_come_from_the_files_when_there_are_files(moe_checkpoint):
    item = claims(check_backend(open_checkpoint(str(moe_checkpoint.folder)), situation(ranks=1)))[
        "weights-fit"
    ]
    assert "sizes of the tensors on disk" in texts(item)


def test_a_described_gpu_is_as_good_as_a_named_one(moe_checkpoint):
    gpu = choose_gpu(GpuOptions(capability="120", memory="1MB", bandwidth="1TB/s"))
    found_claims = claims(check_backend(open_checkpoint(str(moe_checkpoint.folder)), Situation(gpu)))
    assert found_claims["gpu-known"].verdict is PROVEN
    assert found_claims["weights-fit"].verdict is DISPROVED


def test_a_family_of_unknown_shape_is_weighed_and_left_open(kernels):
    name = "deepseek-ai_DeepSeek-R1"
    files = public_config_files(name)
    stranger = ServedCheckpoint(name, files.config.content, None, None, {}, {}, False)
    report = check_backend(stranger, situation(measured=50.0), kernels())
    found_claims = claims(report)
    assert found_claims["weights-fit"].verdict is UNKNOWN
    assert found_claims["roofline"].verdict is UNKNOWN
    assert found_claims["measured-speed"].verdict is UNKNOWN
    assert "DeepseekV3ForCausalLM" in found_claims["roofline"].reason


def test_a_broken_config_is_evidence_and_no_error(dense_checkpoint, tmp_path):
    folder = copy_of(dense_checkpoint.folder, tmp_path / "broken")
    (folder / "config.json").write_text("{")
    report = check_backend(open_checkpoint(str(folder)), situation(ranks=2))
    assert report.verdict is UNKNOWN
    assert claims(report)["roofline"].verdict is UNKNOWN


def test_every_public_config_on_every_kind_of_gpu_gives_a_report(kernels):
    for name in ("Qwen_Qwen3.5-0.8B", "Qwen_Qwen3.8-2.4T-A95B-FP8", "Qwen_Qwen3-Next-80B-A3B-Instruct"):
        for gpu, ranks in (("l4", 1), ("b300", 8), ("dgx-spark", 2)):
            report = check_backend(served(name), situation(gpu, ranks, measured=3.0), kernels())
            checks = [item.check for item in report.items]
            assert len(checks) == len(set(checks)), checks
            assert all(item.claim.endswith(".") for item in report.items)


def test_the_precision_of_a_head_without_files_is_a_promise_and_its_kernel_open(kernels):
    head = choice(operation=Operation.DENSE_GEMM, group="MTP projection", is_promised=True)
    report = check_backend(served(), situation(), kernels(facts(choice(), head)))
    item = claims(report)["kernel-dense-gemm-mtp-projection"]
    assert item.verdict is UNKNOWN
    assert item.reason.startswith("there are no weight files; with the tensors that the config promises: ")
    assert claims(report)["kernel-expert-gemm-routed-experts"].verdict is PROVEN
