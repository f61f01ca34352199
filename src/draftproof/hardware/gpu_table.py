"""The GPUs that an operator would name. Every figure says where it comes from.

Memory is what nvidia-smi reports where such a reading is known, else the vendor's decimal figure, which is a
little less than what the board holds. Compute peaks are dense (without sparsity), as vendors print them.

Seconds of one all-reduce: measured between two H200 (6.5 microseconds for 8 to 32 KB by symmetric memory,
inside a CUDA graph); the same is assumed for other NVLink. For PCIe they are an assumption: serving stacks
switch their own all-reduce off between more than two PCIe GPUs, and NCCL, which took 17 microseconds between
two NVLink GPUs, then goes through the host bridge.
"""

from __future__ import annotations

from draftproof.hardware.gpu import Figure, Gpu, GpuLink, LinkKind

SHEET = "vendor data sheet"
_MIB = 2**20
_TERA = 1e12

MEASURED_ALL_REDUCE = Figure(6.5e-6, "measured between two H200, symmetric memory, inside a CUDA graph")
ASSUMED_NVLINK = Figure(6.5e-6, "assumed, as measured between two H200")
ASSUMED_PCIE = Figure(30e-6, "assumed: NCCL over PCIe, no NVLink; 15 to 60 microseconds have to be expected")


def nvlink(generation: str, gigabytes: float, all_reduce: Figure = ASSUMED_NVLINK) -> GpuLink:
    """NVLink with this many GB/s in one direction."""
    return GpuLink(LinkKind.NVLINK, f"NVLink {generation}", gigabytes * 1e9, all_reduce)


def pcie(generation: int, lanes: int = 16) -> GpuLink:
    """PCIe of a generation: 2 GB/s a lane and direction for generation 4, 4 GB/s for generation 5."""
    bandwidth = lanes * 2e9 * 2 ** (generation - 4)
    return GpuLink(LinkKind.PCIE, f"PCIe {generation}.0 x{lanes}", bandwidth, ASSUMED_PCIE)


def _reported(mebibytes: int) -> Figure:
    return Figure(mebibytes * _MIB, f"nvidia-smi reports {mebibytes} MiB")


def _promised(gigabytes: float) -> Figure:
    return Figure(gigabytes * 1e9, f"{SHEET}: {gigabytes:g} GB")


def _peak(terabytes: float) -> Figure:
    return Figure(terabytes * _TERA, SHEET)


def _compute(teraflops: float | None) -> Figure | None:
    return None if teraflops is None else Figure(teraflops * _TERA, SHEET)


def _gpu(
    key: str,
    title: str,
    capability: int,
    memory: Figure,
    terabytes: float,
    link: GpuLink,
    dense: tuple[float | None, float | None, float | None] = (None, None, None),
    aliases: tuple[str, ...] = (),
    measured: Figure | None = None,
) -> Gpu:
    """A row; `dense` holds teraflops in BF16, FP8 and FP4."""
    bf16, fp8, fp4 = (_compute(peak) for peak in dense)
    return Gpu(key, title, capability, memory, _peak(terabytes), link, measured, bf16, fp8, fp4, aliases)


_READ_ON_H200 = Figure(4.58e12, "measured on one H200: 8-byte reads over 4 GiB; 4.8 TB/s on the data sheet")

AMPERE_AND_ADA = (
    _gpu(
        "a100-40gb",
        "A100 40GB",
        80,
        _reported(40960),
        1.555,
        nvlink("3", 300),
        (312, None, None),
        ("A100-SXM4-40GB", "A100-PCIE-40GB", "a100-40"),
    ),
    _gpu(
        "a100-80gb",
        "A100 80GB SXM",
        80,
        _reported(81920),
        2.039,
        nvlink("3", 300),
        (312, None, None),
        ("A100-SXM4-80GB", "a100-80", "a100"),
    ),
    _gpu(
        "a100-80gb-pcie",
        "A100 80GB PCIe",
        80,
        _reported(81920),
        1.935,
        pcie(4),
        (312, None, None),
        ("A100 80GB PCIe", "a100-pcie"),
    ),
    _gpu("l4", "L4", 89, _reported(23034), 0.300, pcie(4), (121, 242, None)),
    _gpu("l40s", "L40S", 89, _reported(46068), 0.864, pcie(4), (362, 733, None)),
    _gpu("l40", "L40", 89, _reported(46068), 0.864, pcie(4), (181, 362, None)),
    _gpu("l20", "L20", 89, _reported(46068), 0.864, pcie(4), (119.5, 239, None)),
    _gpu("rtx-4090", "GeForce RTX 4090", 89, _reported(24564), 1.008, pcie(4), (165, 330, None), ("4090",)),
    _gpu(
        "rtx-6000-ada",
        "RTX 6000 Ada",
        89,
        _reported(49140),
        0.960,
        pcie(4),
        (364, 728, None),
        ("RTX 6000 Ada Generation", "6000-ada"),
    ),
)

HOPPER = (
    _gpu(
        "h100",
        "H100 SXM",
        90,
        _reported(81559),
        3.35,
        nvlink("4", 450),
        (989, 1979, None),
        ("H100 80GB HBM3", "h100-sxm", "h100-sxm5", "h100-80gb"),
    ),
    _gpu(
        "h100-pcie",
        "H100 PCIe",
        90,
        _reported(81559),
        2.0,
        pcie(5),
        (756, 1513, None),
        ("NVIDIA H100 PCIe",),
    ),
    _gpu(
        "h100-nvl", "H100 NVL", 90, _reported(95830), 3.9, nvlink("4 bridge of two", 300), (835, 1671, None)
    ),
    _gpu("h20", "H20", 90, _reported(97871), 4.0, nvlink("4", 450), (148, 296, None)),
    _gpu(
        "h200",
        "H200 SXM",
        90,
        _reported(143771),
        4.8,
        nvlink("4", 450, MEASURED_ALL_REDUCE),
        (989, 1979, None),
        ("h200-sxm", "h200-141gb"),
        _READ_ON_H200,
    ),
    _gpu(
        "h200-nvl",
        "H200 NVL",
        90,
        _reported(143771),
        4.8,
        nvlink("4 bridge of up to four", 450),
        (835, 1671, None),
    ),
    _gpu(
        "gh200-96gb",
        "GH200 96GB",
        90,
        _reported(97871),
        4.0,
        nvlink("4", 450),
        (989, 1979, None),
        ("GH200 480GB", "gh200"),
    ),
    _gpu(
        "gh200-144gb",
        "GH200 144GB",
        90,
        _promised(144),
        4.9,
        nvlink("4", 450),
        (989, 1979, None),
        ("GH200 144G HBM3e",),
    ),
)

BLACKWELL_DATA_CENTER = (
    _gpu(
        "b200",
        "B200",
        100,
        _reported(183359),
        8.0,
        nvlink("5", 900),
        (2250, 4500, 9000),
        ("b200-sxm",),
        Figure(7.67e12, "7680-bit bus at 3996 MHz as the driver reports them; 8 TB/s on the data sheet"),
    ),
    _gpu("gb200", "GB200", 100, _reported(189471), 8.0, nvlink("5", 900), (2500, 5000, 10000)),
    _gpu(
        "b300",
        "B300",
        103,
        _reported(275040),
        8.0,
        nvlink("5", 900),
        (2250, 4500, 13500),
        ("B300 SXM6 AC",),
    ),
    _gpu(
        "gb300",
        "GB300",
        103,
        _reported(284208),
        8.0,
        nvlink("5", 900),
        (2500, 5000, 15000),
        ("GB300 NVL",),
    ),
)

BLACKWELL_BOARDS = (
    _gpu(
        "rtx-pro-6000",
        "RTX PRO 6000 Blackwell Workstation",
        120,
        _reported(97887),
        1.792,
        pcie(5),
        (504, 1008, 2015),
        ("RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell", "pro6000", "6000-pro"),
    ),
    _gpu(
        "rtx-pro-6000-max-q",
        "RTX PRO 6000 Blackwell Max-Q",
        120,
        _reported(97887),
        1.792,
        pcie(5),
        (439, 878, 1755),
        ("RTX PRO 6000 Blackwell Max-Q Workstation Edition", "pro6000-max-q"),
    ),
    _gpu(
        "rtx-pro-6000-server",
        "RTX PRO 6000 Blackwell Server",
        120,
        _reported(97887),
        1.597,
        pcie(5),
        (None, None, 2000),
        ("RTX PRO 6000 Blackwell Server Edition", "pro6000-server"),
    ),
    _gpu(
        "rtx-pro-5000",
        "RTX PRO 5000 Blackwell",
        120,
        _reported(48935),
        1.344,
        pcie(5),
        aliases=("pro5000", "rtx-pro-5000-48gb"),
    ),
    _gpu("rtx-pro-5000-72gb", "RTX PRO 5000 Blackwell 72GB", 120, _promised(72), 1.344, pcie(5)),
    _gpu(
        "rtx-pro-4500",
        "RTX PRO 4500 Blackwell",
        120,
        _reported(32623),
        0.896,
        pcie(5),
        aliases=("pro4500",),
    ),
    _gpu("rtx-pro-4000", "RTX PRO 4000 Blackwell", 120, _promised(24), 0.672, pcie(5), aliases=("pro4000",)),
    _gpu(
        "rtx-5090",
        "GeForce RTX 5090",
        120,
        _reported(32607),
        1.792,
        pcie(5),
        (209.5, 419, 1676),
        ("5090",),
    ),
    _gpu("rtx-5080", "GeForce RTX 5080", 120, _reported(16303), 0.960, pcie(5), aliases=("5080",)),
    _gpu("rtx-5070-ti", "GeForce RTX 5070 Ti", 120, _reported(16303), 0.896, pcie(5), aliases=("5070-ti",)),
    _gpu(
        "dgx-spark",
        "DGX Spark GB10",
        121,
        _promised(119),
        0.273,
        GpuLink(LinkKind.PCIE, "ConnectX-7 between machines", 25e9, ASSUMED_PCIE),
        aliases=("gb10", "spark", "NVIDIA GB10"),
    ),
)

GPUS = (*AMPERE_AND_ADA, *HOPPER, *BLACKWELL_DATA_CENTER, *BLACKWELL_BOARDS)
"""All of them, oldest first."""
