"""From what an operator types to a GPU."""

from dataclasses import replace

import pytest

from draftproof.errors import UsageError
from draftproof.hardware.gpu import LinkKind
from draftproof.hardware.gpu_choice import GpuOptions, choose_gpu, find_gpu, parse_capability
from draftproof.hardware.gpu_table import GPUS


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("rtx-pro-6000", "rtx-pro-6000"),
        ("RTX PRO 6000 Blackwell", "rtx-pro-6000"),
        ("pro6000", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"),
        ("RTX_PRO_6000_MAXQ", "rtx-pro-6000-max-q"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("h200", "h200"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("5090", "rtx-5090"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("GB300", "gb300"),
        ("DGX Spark", "dgx-spark"),
        ("GB10", "dgx-spark"),
        ("l40s", "l40s"),
    ],
)
def test_a_gpu_is_found_by_the_names_that_people_and_drivers_use(name, key):
    assert find_gpu(name).key == key


def test_a_whole_name_comes_before_one_that_lost_a_filler_word():
    plain = replace(find_gpu("l4"), key="x-9", title="X 9", aliases=())
    edition = replace(find_gpu("l40"), key="x-9-edition", title="X 9 Edition", aliases=())
    assert find_gpu("X 9", (edition, plain)) is plain
    assert find_gpu("X 9 Edition", (edition, plain)) is edition


def test_no_two_gpus_share_a_name():
    for gpu in GPUS:
        for name in (gpu.key, gpu.title, *gpu.aliases):
            assert find_gpu(name) is gpu, name


@pytest.mark.parametrize(
    ("key", "capability"),
    [
        ("a100-80gb", 80),
        ("l40s", 89),
        ("rtx-4090", 89),
        ("h200", 90),
        ("gh200-96gb", 90),
        ("b200", 100),
        ("gb200", 100),
        ("b300", 103),
        ("gb300", 103),
        ("rtx-pro-6000", 120),
        ("rtx-5090", 120),
        ("dgx-spark", 121),
    ],
)
def test_compute_capabilities(key, capability):
    gpu = find_gpu(key)
    assert gpu.capability == capability
    assert gpu.architecture == f"SM{capability}"
    assert gpu.has_native_fp4 == (capability >= 100)
    assert gpu.has_native_fp8 == (capability >= 89)


def test_every_figure_has_a_source_and_a_believable_size():
    for gpu in GPUS:
        figures = [gpu.memory, gpu.bandwidth, gpu.link.all_reduce]
        figures += [f for f in (gpu.measured_bandwidth, gpu.bf16, gpu.fp8, gpu.fp4) if f]
        assert all(figure.source for figure in figures)
        assert 10e9 < gpu.memory.value < 400e9
        assert 0.2e12 < gpu.bandwidth.value < 10e12
        assert 2 <= gpu.capability / 40 < 4
        assert gpu.reachable_bandwidth.value <= gpu.bandwidth.value


def test_the_measured_reading_of_the_h200_counts_before_its_peak():
    gpu = find_gpu("h200")
    assert gpu.bandwidth.value == 4.8e12
    assert gpu.reachable_bandwidth.value == 4.58e12
    assert "measured" in gpu.reachable_bandwidth.source


def test_an_unknown_name_offers_the_nearest_and_the_alternative():
    with pytest.raises(UsageError) as caught:
        find_gpu("rtx-pro-600")
    text = str(caught.value)
    assert "rtx-pro-6000" in text
    assert "--sm 120 --memory 96GB --bandwidth 1.8TB/s" in text
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["", " ", "!!!", "qqqqqqqqqqqqqqq", "x" * 10_000, "\N{SNOWMAN}"])
def test_a_name_that_is_like_none_still_names_the_alternative(name):
    with pytest.raises(UsageError) as caught:
        find_gpu(name)
    assert "--bandwidth" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_gpu_can_be_described_instead_of_named():
    gpu = choose_gpu(GpuOptions(capability="12.0", memory="96GB", bandwidth="1.8TB/s"))
    assert gpu is not None
    assert (gpu.capability, gpu.memory_bytes, gpu.bandwidth.value) == (120, 96 * 10**9, 1.8e12)
    assert gpu.link.kind is LinkKind.PCIE
    assert "assumed" in gpu.link.all_reduce.source
    assert gpu.title == "SM120 GPU"


def test_single_figures_of_a_named_gpu_can_be_replaced():
    gpu = choose_gpu(GpuOptions(name="h200", bandwidth="4.3TB/s"))
    assert gpu is not None
    assert gpu.key == "h200"
    assert gpu.reachable_bandwidth.value == 4.3e12
    assert "command line" in gpu.reachable_bandwidth.source


def test_nothing_said_is_no_gpu_and_half_a_description_is_refused():
    assert choose_gpu(GpuOptions()) is None
    with pytest.raises(UsageError, match=r"--memory and --bandwidth"):
        choose_gpu(GpuOptions(capability="120"))


@pytest.mark.parametrize(
    ("text", "capability"),
    [("90", 90), ("9.0", 90), ("sm_120", 120), ("SM103", 103), ("sm90a", 90), ("10.3", 103), ("121", 121)],
)
def test_spellings_of_a_compute_capability(text, capability):
    assert parse_capability(text) == capability


@pytest.mark.parametrize("text", ["", "9", "hopper", "12.10", "-90", "sm"])
def test_what_is_no_compute_capability(text):
    with pytest.raises(UsageError, match="--sm"):
        parse_capability(text)
