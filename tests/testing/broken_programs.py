"""Programs of ten operators, for kernels of them to be broken, and cases that must find that out.

Run as a module, this breaks each kernel in every way at every place, or at `--most` places; with
`--on-device`, it runs mutants, one line of JSON for each, that the caller reads.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random

import numpy as np

import dmlc
from dmlc.binding import TensorDesc, ir_name
from dmlc.devices import compile_for, find_device, load_on
from dmlc.ir import Function
from dmlc.pipeline import USUAL, Steps
from dmlc.source import DmlcError
from dmlc.testing.case import Call, Case, judge, make_output
from dmlc.testing.fill import KINDS, fill
from dmlc.testing.variants import lower_in_parts
from tests.testing.mutants import Finder, Program, Trial
from tests.testing.mutate import Mutant, draw_mutants

MANY = 2000
"""Elements from which on a call is given ordinary values and ties alone."""
PROGRAMS: Mapping[str, tuple[str, str, Steps]] = {
    "opencl cpu": ("opencl", "cpu", USUAL),
    "opencl gpu": ("opencl", "gpu", USUAL),
    "hlsl gpu": ("hlsl", "gpu", USUAL),
    "opencl cpu in parts": ("opencl", "cpu", Steps(lower=lower_in_parts)),
}
IN_PARTS = "opencl cpu in parts"
"""What large tensors alone have otherwise: stores past the caches, reductions in pieces."""


@dataclasses.dataclass(frozen=True)
class Tensors:
    """The sizes of the inputs of a call; those of outputs where these do not follow, and strides
    and types that are not the usual ones."""

    sizes: Mapping[str, tuple[int, ...]]
    strides: Mapping[str, tuple[int, ...]] = dataclasses.field(
        default_factory=dict[str, tuple[int, ...]]
    )
    types: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    def describe(self) -> dict[str, TensorDesc]:
        return {
            n: TensorDesc(self.types.get(n, "FLOAT32"), s, self.strides.get(n))
            for n, s in self.sizes.items()
        }


def make_call(operator: str, tensors: Tensors, attributes: Mapping[str, object]) -> Call:
    found, given = dmlc.operator(operator), tensors.describe()
    bound = found.resolve(given, attributes).tensors
    outputs = {
        n: TensorDesc(t.dtype, t.sizes)
        for n, t in bound.items()
        if n not in given and t.dtype is not None and t.sizes is not None
    }
    return Call(found, {**given, **outputs}, attributes)


@dataclasses.dataclass(frozen=True)
class Subject:
    """An operator with attributes, and tensors of its calls: of several, one program serves all."""

    operator: str
    calls: tuple[Tensors, ...]
    attributes: Mapping[str, object] = dataclasses.field(default_factory=dict[str, object])
    parts: bool = False
    """Whether it is done in parts, too."""

    @property
    def programs(self) -> list[str]:
        return [name for name in PROGRAMS if self.parts or name != IN_PARTS]

    def make_calls(self) -> list[Call]:
        return [make_call(self.operator, tensors, self.attributes) for tensors in self.calls]

    def make_function(self) -> Function:
        """The function for all sizes, where there are several calls."""
        first, *others = self.make_calls()
        if not others:
            return first.function
        tensors = {n: TensorDesc(d.data_type) for n, d in first.tensors.items()}
        return first.operator.bind(tensors, self.attributes)

    def make_cases(self) -> list[Case]:
        random = np.random.default_rng(3)
        return [
            Case(call, fill(call, kind, random), f"{kind}: {call}")
            for call in self.make_calls()
            for kind in _list_kinds(call)
        ]


def _list_kinds(call: Call) -> Sequence[str]:
    sizes = [desc.sizes or () for desc in call.inputs.values()]
    most = max(int(np.prod([s for s in each if isinstance(s, int)])) for each in sizes)
    return ("random", "ties") if most > MANY else (*KINDS, *("large", "special", "far") * 3)


def alike(names: str, *sizes: int) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(names.split(), sizes)


_POOLING = {
    "DimensionCount": 2, "Strides": [2, 1], "WindowSize": [3, 3], "StartPadding": [1, 1],
    "EndPadding": [1, 1],
}  # fmt: skip
_CONVOLUTION = {
    "Mode": "CROSS_CORRELATION", "Direction": "FORWARD", "DimensionCount": 2, "Strides": [1, 1],
    "Dilations": [1, 1], "StartPadding": [1, 1], "EndPadding": [1, 1], "OutputPadding": [0, 0],
    "GroupCount": 1,
}  # fmt: skip
_RELU_GRAD = "InputTensor InputGradientTensor"
SUBJECTS: Mapping[str, Subject] = {
    "ReLU's gradient": Subject(
        "directml.ACTIVATION_RELU_GRAD",
        tuple(Tensors(alike(_RELU_GRAD, n)) for n in (5, 300, 1025, 4090, 33001)),
        parts=True,
    ),
    "ReLU's gradient, strided": Subject(
        "directml.ACTIVATION_RELU_GRAD",
        (Tensors(alike(_RELU_GRAD, 48, 33), {"InputTensor": (40, 1)}),),
        parts=True,
    ),
    "ReLU's backward pass": Subject(
        "onednn.ReLUBackward",
        tuple(Tensors(alike("src diff_dst", n, 3)) for n in (1, 99, 1364, 1367)),
    ),
    "a linear resampling's gradient": Subject(
        "directml.RESAMPLE_GRAD1",
        (Tensors({"InputGradientTensor": (1, 2, 9, 33), "OutputGradientTensor": (1, 2, 6, 44)}),),
        {
            "InterpolationMode": "LINEAR", "RoundingDirection": "DECREASING",
            "Scales": [1, 1, 1.5, 0.75], "InputPixelOffsets": [-0.5] * 4,
            "OutputPixelOffsets": [0.5] * 4,
        },
    ),
    "a nearest resampling's gradient": Subject(
        "directml.RESAMPLE_GRAD1",
        (Tensors({"InputGradientTensor": (16, 48), "OutputGradientTensor": (8, 32)}),),
        {
            "InterpolationMode": "NEAREST_NEIGHBOR", "RoundingDirection": "DECREASING",
            "Scales": [2, 1.5], "InputPixelOffsets": [-0.5] * 2, "OutputPixelOffsets": [0.5] * 2,
        },
    ),
    "batch normalization's gradient": Subject(
        "directml.BATCH_NORMALIZATION_TRAINING_GRAD",
        (Tensors({**alike(_RELU_GRAD, 3, 4, 9, 17),
                  **alike("MeanTensor VarianceTensor ScaleTensor", 1, 4, 1, 1)}),),
        {"Epsilon": 1e-5},
        parts=True,
    ),
    "softmax of long rows": Subject(
        "directml.ACTIVATION_SOFTMAX1",
        (Tensors(alike("InputTensor", 8, 35)),),
        {"Axes": [1]},
        parts=True,
    ),
    "softmax of short rows": Subject(
        "directml.ACTIVATION_SOFTMAX1", (Tensors(alike("InputTensor", 64, 9)),), {"Axes": [1]}
    ),
    "a product": Subject(
        "directml.GEMM",
        (Tensors({"ATensor": (24, 40), "BTensor": (40, 37), "CTensor": (24, 37)}),),
        {"Alpha": 0.5, "Beta": 2.0},
    ),
    "a transposed product": Subject(
        "directml.GEMM",
        (Tensors({"ATensor": (20, 35), "BTensor": (56, 35)}),),
        {"TransB": "TRANSPOSE"},
    ),
    "pooling": Subject(
        "directml.MAX_POOLING", (Tensors(alike("InputTensor", 1, 2, 13, 35)),), _POOLING
    ),
    "layer normalization's gradient": Subject(
        "onednn.LayerNormBackward",
        (Tensors({**alike("src diff_dst", 12, 33), **alike("mean variance", 12), "gamma": (33,)}),),
        parts=True,
    ),
    "gathering": Subject(
        "directml.GATHER",
        (Tensors({"InputTensor": (5, 33), "IndicesTensor": (1, 40)},
                 types={"IndicesTensor": "INT32"}),),
        {"Axis": 0, "IndexDimensions": 1},
    ),
    "a convolution": Subject(
        "directml.CONVOLUTION",
        (Tensors({"InputTensor": (1, 3, 9, 21), "FilterTensor": (4, 3, 3, 3)}),),
        _CONVOLUTION,
    ),
}  # fmt: skip
"""Ten operators, at sizes that take every kind of loop to its end."""


# Trying ---------------------------------------------------------------------------------------


def make_trial(subject: str, program: str) -> Trial:
    target, profile, steps = PROGRAMS[program]
    found = SUBJECTS[subject]
    made = Program.make(found.make_function(), target, profile, steps)
    return Trial(made, found.make_cases())


KNOWN: Mapping[str, str] = {
    r"sum_total\[1\] = add\(": "the parts of a sum are added up, whichever takes the rest",
    r"(right_tile|next_right)\[.* = select\((or\(.*, 0\.0|.*, 1\.0)\)$": (
        "beyond the last point, the left tile is all zeros"
    ),
}
"""Breaks that change nothing, by what the broken line is like, and why."""


def try_all(trial: Trial, most: int | None, seed: int = 1) -> Iterator[tuple[Mutant, str]]:
    """Every mutant, and what finds it out or why it is equivalent; nothing where it is neither."""
    for mutant in draw_mutants(trial.program.kernels, Random(seed), most):
        finder = trial.find_out(mutant)
        reason = trial.show_equivalent(mutant) if finder is None else finder.value
        lines = [line for line in str(mutant).splitlines() if line.startswith("+")]
        known = (why for part, why in KNOWN.items() if any(re.search(part, x) for x in lines))
        yield mutant, reason or next(known, "")


def run_on_device(subject: str, most: int) -> Iterator[dict[str, object]]:
    """Mutants of an operator's OpenCL program that give wrong results, compiled with the break in
    place and run on PoCL: whether any case shows it there, too."""
    trial, device = make_trial(subject, "opencl cpu"), find_device("opencl")
    assert device is not None
    wrong = (m for m in draw_mutants(trial.program.kernels, Random(2), 1)
             if trial.find_out(m) is Finder.RESULT)  # fmt: skip
    for mutant in itertools.islice(wrong, most):
        yield {"mutant": str(mutant), "found": False}
        steps = [mutant.steps, USUAL]
        broken, whole = (
            load_on(compile_for(trial.program.function, device, s), device) for s in steps
        )
        found = False
        for case, _ in trial.results:
            given = {ir_name(n): a for n, a in case.inputs.items()}
            verdicts: list[bool] = []
            for executable in (broken, whole):
                outputs = {ir_name(n): make_output(d) for n, d in case.call.outputs.items()}
                try:
                    results = executable(given, outputs)
                except DmlcError:
                    verdicts.append(False)
                    continue
                named = {n: results[ir_name(n)] for n in case.call.outputs}
                verdicts.append(all(v.holds for v in judge(case, named).values()))
            found = found or verdicts == [False, True]
        yield {"mutant": str(mutant), "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subjects", nargs="*", default=list(SUBJECTS), metavar="SUBJECT")
    parser.add_argument("--most", type=int, help="places of a kernel for each way to break it")
    parser.add_argument("--on-device", type=int, metavar="N", help="run N of each on PoCL")
    given = parser.parse_args()
    total: Counter[str] = Counter()
    for subject in given.subjects:
        if given.on_device is not None:
            for line in run_on_device(subject, given.on_device):
                print(json.dumps(line), flush=True)
            continue
        for program in SUBJECTS[subject].programs:
            begun, trial = time.perf_counter(), make_trial(subject, program)
            counts: Counter[str] = Counter()
            for mutant, reason in try_all(trial, given.most):
                counts[reason or "NOTHING"] += 1
                if not reason:
                    print(mutant)
            total += counts
            took = time.perf_counter() - begun
            print(f"{subject}, {program} ({took:.1f} s): {dict(counts)}", flush=True)
    if total:
        print(f"{total.total()} mutants: {dict(total)}")
        sys.exit(1 if total["NOTHING"] else 0)


if __name__ == "__main__":
    main()
