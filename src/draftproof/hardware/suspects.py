"""A measured speed against the roofline: what share was reached, and what could explain the rest.

Every suspect says which speed it would lead to by itself, so that the number at hand decides the order and
not a habit. Speeds are ranges: the model of an ordinary stack is right within about a quarter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from draftproof.architecture.tensor_plan import ModelPart, TensorGroup
from draftproof.checkpoint.precision import Precision
from draftproof.hardware.gpu import LinkKind
from draftproof.hardware.roofline import (
    SECONDS_PER_KERNEL,
    Model,
    NextnPrediction,
    Roofline,
    StepTime,
    expected_accept_length,
    speed,
)

EXPECTED_SPREAD = 0.25
"""The model of an ordinary stack met public figures within this share."""
_FP4 = (Precision.NVFP4_MODELOPT, Precision.NVFP4_COMPRESSED, Precision.MXFP4)
_REQUEST_CAP = 48
_FEW_ACCEPTED = (1.2, 2.0)


@dataclass(frozen=True)
class Suspect:
    """Something that makes decoding slow.

    Attributes:
        name: what it is.
        slowest: tokens per second that it would lead to, at least.
        fastest: and at most.
        fits: the measured speed lies between them.
        why: how it follows.
        check: how to see whether it is so.
    """

    name: str
    slowest: float
    fastest: float
    fits: bool
    why: str
    check: str


@dataclass(frozen=True)
class MeasuredShare:
    """A measured speed, compared.

    Attributes:
        measured: tokens per second of all sequences.
        draft_tokens: K that it was measured with; 0 for plain decoding.
        accept_length: tokens per verify pass that the comparison uses.
        accept_length_given: the user measured it; otherwise it is one to plan with.
        of_plain: share of the ideal of plain decoding.
        of_nextn: share of the ideal of NEXTN at that accept length; None without a head.
        of_ordinary: share of what an ordinary stack reaches in the same way.
        possible: no more than bytes and bandwidth allow with every draft accepted.
        bound: tokens per second that they allow.
        suspects: what explains it, those that fit the number first; empty when nothing needs explaining.
    """

    measured: float
    draft_tokens: int
    accept_length: float
    accept_length_given: bool
    of_plain: float
    of_nextn: float | None
    of_ordinary: float
    possible: bool
    bound: float
    suspects: tuple[Suspect, ...]

    @property
    def is_ordinary(self) -> bool:
        """As fast as such deployments are, or faster."""
        return self.of_ordinary >= 1.0 - EXPECTED_SPREAD


class FourBitUnits(Enum):
    """What is known about the kernels of 4-bit weights."""

    USED = "multiplied by the GPU's own units"
    CONVERTED = "converted to something wider first"
    UNKNOWN = "not known"


def compare_measured(
    model: Model,
    line: Roofline,
    measured: float,
    draft_tokens: int,
    accept_length: float | None = None,
    four_bits: FourBitUnits = FourBitUnits.UNKNOWN,
) -> MeasuredShare:
    """Compares a measured speed with a roofline.

    Args:
        model: sizes and shape.
        line: its prediction; it must hold one for `draft_tokens`.
        measured: tokens per second of all sequences.
        draft_tokens: K of the launch; 0 for plain decoding.
        accept_length: as measured; None plans with a public one.
        four_bits: what the stack does with 4-bit weights; where it uses the GPU's units for them, their
            conversion is no suspect.
    """
    prediction = line.with_drafts(draft_tokens)
    length = 1.0
    if prediction is not None:
        planned = expected_accept_length(draft_tokens) if accept_length is None else accept_length
        length = min(max(planned, 1.0), draft_tokens + 1.0)
    time = prediction.time if prediction else line.plain
    expected = speed(time, length)
    bound = prediction.bound if prediction else line.plain_speed.ideal
    share = MeasuredShare(
        measured=measured,
        draft_tokens=draft_tokens if prediction else 0,
        accept_length=length,
        accept_length_given=accept_length is not None,
        of_plain=measured / line.plain_speed.ideal,
        of_nextn=measured / expected.ideal if prediction else None,
        of_ordinary=measured / expected.ordinary,
        possible=measured <= max(bound, line.plain_speed.ideal),
        bound=max(bound, line.plain_speed.ideal),
        suspects=(),
    )
    if share.is_ordinary:
        return share
    suspects = _Lineup(model, line, prediction, length, measured, four_bits).suspects()
    return replace(share, suspects=suspects)


@dataclass(frozen=True)
class _Mode:
    """A way of decoding; `lengths` are the least and the most tokens per verify pass."""

    name: str
    why: str
    check: str
    time: StepTime
    lengths: tuple[float, float]


@dataclass(frozen=True)
class _Cost:
    """Something that makes a step longer.

    `seconds` gives the least and the most seconds of a step of which it is a part.
    """

    name: str
    why: str
    check: str
    seconds: Callable[[StepTime], tuple[float, float]]


_PLAIN_CHECK = (
    "SGLang: 'accept len' in its decode lines, spec_verify_ct in meta_info; vLLM: 'SpecDecoding metrics'; "
    "nothing there means no speculation. The launch link judges the command"
)
_NOTHING_ACCEPTED_CHECK = (
    "accept length in the log or in /metrics: pinned at 1.00 means that the head's weights were not loaded "
    "(links 2 and 3 say which) or that it is fed the wrong hidden state"
)


class _Lineup:
    """All suspects of one comparison."""

    def __init__(
        self,
        model: Model,
        line: Roofline,
        prediction: NextnPrediction | None,
        length: float,
        measured: float,
        four_bits: FourBitUnits,
    ) -> None:
        self._model = model
        self._line = line
        self._prediction = prediction
        self._length = length
        self._measured = measured
        self._four_bits = four_bits

    def suspects(self) -> tuple[Suspect, ...]:
        """One cause each; pairs of causes only when no single one is enough."""
        modes, costs = list(self._modes()), list(self._costs())
        believed, wrong = modes[0], modes[1:]
        single = [self._suspect(mode, None) for mode in wrong]
        single += [self._suspect(believed, cost) for cost in costs]
        if not any(suspect.fits for suspect in single):
            pairs = [self._suspect(mode, cost) for mode in wrong for cost in costs]
            single += [suspect for suspect in pairs if suspect.fits]
        return tuple(sorted(single, key=self._distance))

    def _distance(self, suspect: Suspect) -> tuple[bool, float]:
        """Fitting ones by how near the middle of their range is, the others by how far off its edge."""
        middle = math.sqrt(suspect.slowest * suspect.fastest)
        edge = suspect.slowest if self._measured < suspect.slowest else suspect.fastest
        return not suspect.fits, abs(math.log((middle if suspect.fits else edge) / self._measured))

    def _suspect(self, mode: _Mode, cost: _Cost | None) -> Suspect:
        least, most = cost.seconds(mode.time) if cost else (mode.time.ordinary, mode.time.ordinary)
        fewest, greatest = (length * mode.time.sequences for length in mode.lengths)
        slowest = fewest / (most * (1 + EXPECTED_SPREAD))
        fastest = greatest / (least * (1 - EXPECTED_SPREAD))
        parts = [part for part in (mode if mode.name else None, cost) if part is not None]
        return Suspect(
            name=", and ".join(part.name for part in parts),
            slowest=slowest,
            fastest=fastest,
            fits=slowest <= self._measured <= fastest,
            why="; ".join(part.why for part in parts),
            check="; ".join(part.check for part in parts),
        )

    def _modes(self) -> Iterator[_Mode]:
        """What the user believes first, then what it could be instead."""
        plain = self._line.plain
        if self._prediction is None:
            yield _Mode("", "", "", plain, (1.0, 1.0))
            return
        time = self._prediction.time
        yield _Mode("", "", "", time, (self._length, self._length))
        yield _Mode(
            "the MTP head is not active",
            f"plain decoding takes about {_milliseconds(plain.ordinary)} a token here",
            _PLAIN_CHECK,
            plain,
            (1.0, 1.0),
        )
        yield _Mode(
            "the head drafts and nothing is accepted",
            f"a step with drafts takes about {_milliseconds(time.ordinary)} and yields one token",
            _NOTHING_ACCEPTED_CHECK,
            time,
            (1.0, 1.0),
        )
        few = _FEW_ACCEPTED
        if self._length > few[1]:
            yield _Mode(
                "few drafts are accepted",
                f"an accept length of {few[0]} to {few[1]} instead of {self._length:.2f}",
                "accept length by position in the log or in /metrics, on your own prompts",
                time,
                few,
            )

    def _costs(self) -> Iterator[_Cost]:
        yield _Cost(
            "CUDA graphs are off",
            "every kernel is started by the host, 6 to 15 microseconds each",
            "--enforce-eager or --disable-cuda-graph in the command; no 'Capture' lines in the log; GPU "
            "utilisation well below 90 %",
            lambda time: self._slower_kernels(time, 6e-6, 15e-6),
        )
        if self._line.place.ranks > 1:
            yield self._slow_all_reduce()
        if self._has_fp4() and self._four_bits is not FourBitUnits.USED:
            yield _Cost(
                "4-bit weights are converted before they are used (Marlin or emulation)",
                "small batches then reach 11 to 27 % of the bandwidth on the experts, as measured on H200",
                "'Marlin', 'weight-only' or 'emulation' in the start-up log; the kernel choices of this link",
                self._converted_weights,
            )
        yield _Cost(
            "the host is too slow",
            "scheduler, tokenizer or client add 5 to 20 milliseconds to every step",
            "one Python process at 100 % in `top`; the same speed with a smaller model; overlap or async "
            "scheduling switched off in the log",
            lambda time: (time.ordinary + 5e-3, time.ordinary + 20e-3),
        )
        yield _Cost(
            "a power or thermal limit",
            "clocks at 50 to 90 %",
            "nvidia-smi -q -d POWER,PERFORMANCE (clocks event reasons)",
            lambda time: (time.ordinary / 0.9, time.ordinary / 0.5),
        )
        if self._line.workload.sequences > _REQUEST_CAP:
            yield _Cost(
                f"only {_REQUEST_CAP} requests run at a time",
                "SGLang lowers its limit of running requests when speculation is on",
                "'Max running requests is reset' in the log",
                lambda time: (time.ordinary, time.ordinary * self._line.workload.sequences / _REQUEST_CAP),
            )

    def _slow_all_reduce(self) -> _Cost:
        ranks, link = self._line.place.ranks, self._line.place.gpu.link
        least, most = (60e-6, 200e-6) if link.kind is LinkKind.PCIE else (15e-6, 60e-6)
        return _Cost(
            f"slow all-reduces over {link.words}",
            f"{self._line.plain.all_reduces} a token at {least * 1e6:.0f} to {most * 1e6:.0f} microseconds "
            f"instead of {link.all_reduce.value * 1e6:g}",
            f"nvidia-smi topo -m; nvidia-smi topo -p2p r; all_reduce_perf -b 8K -e 64K -g {ranks} (of "
            "nccl-tests)",
            lambda time: (
                time.ordinary - time.waiting + time.all_reduces * least,
                time.ordinary - time.waiting + time.all_reduces * most,
            ),
        )

    def _has_fp4(self) -> bool:
        groups = (TensorGroup.ROUTED_EXPERT, TensorGroup.DENSE_MLP)
        rows = self._model.weights.select(ModelPart.TRUNK, *groups)
        return any(row.precision in _FP4 for row in rows)

    def _slower_kernels(self, time: StepTime, least: float, most: float) -> tuple[float, float]:
        kernels = time.kernels / SECONDS_PER_KERNEL
        rest = time.with_all_reduces
        return rest + kernels * least, rest + kernels * most

    def _converted_weights(self, time: StepTime) -> tuple[float, float]:
        labels = ("routed experts", "MLP")
        reading = sum(item.nbytes for item in time.traffic.items if item.label in labels)
        seconds = reading / self._line.place.gpu.reachable_bandwidth.value
        return time.ordinary + seconds * (1 / 0.27 - 1), time.ordinary + seconds * (1 / 0.11 - 1)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
