"""Speed of ten kernels on a device, each relative to a copy of as many bytes on the same device.

A kernel and its copy are timed alternately, in one process, and the result is the median ratio: a
temporary slowdown of the machine affects both. The device's clock is used if its runtime reads it;
else the host's, which includes the transfers of arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from dmlc.binding import TensorDesc
from dmlc.catalog import operator
from dmlc.devices import compile_for, load_on
from dmlc.ir import Function
from dmlc.oracle import find_work
from dmlc.qualify.record import Speed, Speeds
from dmlc.runtime.floats import FloatPromises
from dmlc.runtime.interface import AnyDevice
from dmlc.scalars import Array
from dmlc.source import DmlcError, UnsupportedError
from dmlc.testing.timing import Timer, fill_function, make_copy, race
from dmlc.testing.verify import verify

ROUNDS = 9
SIDE = 1024
"""Rows and columns of the matrices, of four MiB each."""
_MOST_WORK = 1 << 27
"""Work of a function, in instructions, that the reference does in a few seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class TimedFunction:
    """Kernel to time, or several that compute one function."""

    name: str
    sizes: str
    make: Callable[[], Function]


def list_subjects(side: int = SIDE) -> list[TimedFunction]:
    """Ten subjects: elementwise, reductions, data movement, and products. `side` is a multiple of
    32, and determines all sizes."""
    half, channels = side // 2, 32
    image = (4, channels, side // 16, side // 16)
    large = (4, channels, side // 8, side // 8)
    ones = (1, channels, 1, 1)
    square = (side, side)
    rows = (1, 1, side, side)
    pairs: dict[str, object] = {
        name: [1, 1] for name in ("Strides", "Dilations", "StartPadding", "EndPadding")
    }
    scaled = {
        "InterpolationMode": "LINEAR", "RoundingDirection": "DECREASING",
        "Scales": [1.0, 1.0, 2.0, 2.0], "InputPixelOffsets": [-0.5] * 4,
        "OutputPixelOffsets": [0.5] * 4,
    }  # fmt: skip

    def subject(
        name: str, called: str, attributes: Mapping[str, object], **sizes: tuple[int, ...]
    ) -> TimedFunction:
        described = {
            tensor: TensorDesc("INT32" if tensor == "IndicesTensor" else "FLOAT32", extents)
            for tensor, extents in sizes.items()
        }
        shown = " x ".join(map(str, next(iter(sizes.values()))))
        return TimedFunction(
            name, shown, lambda: operator(called).bind(described, attributes=attributes)
        )

    return [
        subject("ReLU gradient", "directml.ACTIVATION_RELU_GRAD", {},
                InputTensor=square, InputGradientTensor=square),
        subject("batch normalization, training gradient",
                "directml.BATCH_NORMALIZATION_TRAINING_GRAD", {"Epsilon": 1e-5},
                InputTensor=large, InputGradientTensor=large, MeanTensor=ones,
                VarianceTensor=ones, ScaleTensor=ones),
        subject("resampling gradient", "directml.RESAMPLE_GRAD1", scaled,
                InputGradientTensor=large, OutputGradientTensor=image),
        subject("sums of rows", "directml.REDUCE", {"Function": "SUM", "Axes": [3]},
                InputTensor=rows),
        subject("softmax", "onednn.SoftMax", {"axis": 1}, src=square),
        subject("cumulative sums of rows", "directml.CUMULATIVE_SUMMATION",
                {"Axis": 3, "AxisDirection": "INCREASING", "HasExclusiveSum": False},
                InputTensor=rows),
        subject("transpose", "onednn.StaticTranspose", {"order": [1, 0]}, src=square),
        subject("gather of rows", "directml.GATHER", {"Axis": 2, "IndexDimensions": 1},
                InputTensor=rows, IndicesTensor=(1, 1, 1, side)),
        subject("matrix product", "directml.GEMM", {},
                ATensor=(1, 1, half, half), BTensor=(1, 1, half, half)),
        subject("convolution, 3 x 3", "directml.CONVOLUTION", pairs | {"OutputPadding": [0, 0]},
                InputTensor=image, FilterTensor=(channels, channels, 3, 3)),
    ]  # fmt: skip


def time_subjects(
    device: AnyDevice,
    subjects: list[TimedFunction],
    rounds: int = ROUNDS,
    watch: Callable[[str], object] = lambda _: None,
) -> Speeds:
    """Speeds of some kernels on a device; `watch` is called before each is timed. An error of one
    is recorded, and the others are timed."""
    clocks: set[str] = set()
    found: list[Speed] = []
    for subject in subjects:
        watch(subject.name)
        try:
            timed = _time(device, subject, rounds, clocks)
        except UnsupportedError as error:
            timed = _not_timed(subject, error.diagnostics[0].message, unsupported=True)
        except DmlcError as error:
            timed = _not_timed(subject, error.diagnostics[0].message)
        except Exception as error:
            # A driver's package raises what it likes, and each is an outcome of the kernel.
            said = " ".join(str(error).split())[:200]
            timed = _not_timed(subject, f"{type(error).__name__}: {said}")
        found.append(timed)
    return Speeds("host" if "host" in clocks else "device", rounds, tuple(found))


def _not_timed(subject: TimedFunction, problem: str, *, unsupported: bool = False) -> Speed:
    return Speed(
        subject.name, subject.sizes, 0, 0.0, 0.0, 0.0, 0.0, 0.0, problem or "?", unsupported
    )


def _time(device: AnyDevice, subject: TimedFunction, rounds: int, clocks: set[str]) -> Speed:
    function = subject.make()
    inputs, outputs = fill_function(function)
    moved = sum(array.nbytes for array in (*inputs.values(), *outputs.values()))
    kernel = Timer(load_on(compile_for(function, device), device), inputs, outputs)
    copy = make_copy(device, moved // 8)
    clocks |= {kernel.clock, copy.clock}
    problem = _find_fault(function, inputs, kernel.run(), device.floats)
    if problem:
        return _not_timed(subject, problem)
    times = dataclasses.astuple(race(kernel, copy, rounds))
    return Speed(subject.name, subject.sizes, moved, *times, problem="", unsupported=False)


def _find_fault(
    function: Function,
    inputs: Mapping[str, Array],
    results: Mapping[str, Array],
    floats: FloatPromises,
) -> str:
    """Error in the results, or empty. Tests are small, and these arrays are not: the reference
    checks what it can evaluate in seconds."""
    for name, array in results.items():
        if not np.isfinite(array).all():
            return f"{name} has elements that are infinite or NaN"
    if find_work(function) > _MOST_WORK:
        return ""
    verdicts = verify(function, inputs, {}, results, floats=floats)
    wrong = (f"{name}: {verdict}" for name, verdict in verdicts.items() if not verdict.holds)
    return next(wrong, "")
