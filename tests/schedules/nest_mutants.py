"""Finds out broken nests with no device. `python -m tests.schedules.nest_mutants` tries all mutants
of all cases, and says what has found each kind."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import dmlc
from dmlc import ir
from dmlc.binding import TensorDesc
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import KernelFault, run_kernels
from dmlc.loops.naive import naive
from dmlc.loops.nodes import Nest
from dmlc.loops.primitives import apply
from dmlc.loops.script import parse_script
from dmlc.loops.verify import verify_nest
from dmlc.lowering import assemble, group
from dmlc.pipeline import make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.source import DmlcError, InternalError
from tests.attention import ONLINE, Attention
from tests.goldens import read_case
from tests.products import Product
from tests.schedules.mutate_nests import KINDS, list_mutants

VERIFIER, KERNEL, LOWERING = "the verifier", "the kernel's verifier", "lowering"
FAULT, RESULT, SAME, OTHER = "the interpreter", "a wrong result", "the same code", "nothing"
"""What finds out a mutant. The same code is no fault: there the nest says one thing in two ways."""


def bind(name: str, settings: dict[str, object], **tensors: tuple[int, ...]) -> ir.Function:
    given = {tensor: TensorDesc("FLOAT32", sizes) for tensor, sizes in tensors.items()}
    return dmlc.operator(name).bind(given, settings)


def convolve() -> ir.Function:
    ones: dict[str, object] = {
        name: [1, 1] for name in ("Strides", "Dilations", "StartPadding", "EndPadding")
    }
    tensors = {"InputTensor": (1, 16, 5, 5), "FilterTensor": (20, 16, 3, 3)}
    return bind("directml.CONVOLUTION", ones | {"OutputPadding": [0, 0]}, **tensors)


def resample(rows: int, columns: int) -> ir.Function:
    given = {
        "InterpolationMode": "LINEAR", "RoundingDirection": "DECREASING",
        "Scales": [1.0, 1.0, 2.0, 2.0], "InputPixelOffsets": [-0.5] * 4,
        "OutputPixelOffsets": [0.5] * 4,
    }  # fmt: skip
    sizes = {"InputGradientTensor": (1, 4, 2 * rows, 2 * columns)}
    return bind("directml.RESAMPLE_GRAD1", given, **sizes,
                OutputGradientTensor=(1, 4, rows, columns))  # fmt: skip


def normalize(*sizes: int) -> ir.Function:
    one = (1, sizes[1], *(1 for _ in sizes[2:]))
    return bind("directml.BATCH_NORMALIZATION_TRAINING_GRAD", {"Epsilon": 1e-5},
                InputTensor=sizes, InputGradientTensor=sizes, MeanTensor=one, VarianceTensor=one,
                ScaleTensor=one)  # fmt: skip


def normalize_layer(rows: int, columns: int) -> ir.Function:
    return bind("onednn.LayerNormBackward", {}, src=(rows, columns), diff_dst=(rows, columns),
                mean=(rows,), variance=(rows,), gamma=(columns,), beta=(columns,),
                diff_gamma=(columns,), diff_beta=(columns,))  # fmt: skip


def pool() -> ir.Function:
    pairs: dict[str, object] = {
        "Strides": [2, 2], "WindowSize": [3, 3], "StartPadding": [1, 1], "EndPadding": [0, 0],
        "Dilations": [1, 1],
    }  # fmt: skip
    return bind("directml.MAX_POOLING_GRAD", pairs, InputTensor=(1, 2, 8, 40),
                InputGradientTensor=(1, 2, 4, 20))  # fmt: skip


def read(text: str) -> Callable[[], ir.Function]:
    return lambda: ir.parse(text)


CASES: dict[str, tuple[Callable[[], ir.Function], str, str | None, str | None]] = {
    "product, panels": (
        lambda: bind("directml.GEMM", {}, ATensor=(1, 1, 13, 18), BTensor=(1, 1, 18, 21)),
        "opencl", "cpu", None,
    ),
    "product, dots": (
        lambda: bind("directml.GEMM", {"TransB": "TRANSPOSE"}, ATensor=(1, 1, 4, 19),
                     BTensor=(1, 1, 17, 19)),
        "opencl", "cpu", None,
    ),
    "product, tiles": (
        lambda: bind("directml.GEMM", {}, ATensor=(1, 1, 33, 18), BTensor=(1, 1, 18, 34)),
        "opencl", "gpu", None,
    ),
    "convolution": (convolve, "opencl", "cpu", None),
    "resampled rows": (lambda: resample(9, 24), "opencl", "cpu", None),
    "resampled windows": (lambda: resample(6, 17), "opencl", "cpu", None),
    "normalized planes": (lambda: normalize(2, 20, 3, 3), "opencl", "cpu", None),
    "normalized rows": (lambda: normalize(9, 36), "opencl", "cpu", None),
    "normalized, shared": (lambda: normalize(2, 3, 5, 5), "opencl", "gpu", None),
    "transposed": (read("""
        func @f(%X: f32[36, 40], %W: f32[40, 36]) -> (%Y) {
          %Y: f32[i0 < 40, i1 < 36] = add(%X[i1, i0], %W[i0, i1])
        }"""), "hlsl", None, None),
    "flat": (read("""
        func @f(%X: f32[9001]) -> (%Y) { %Y: f32[i0 < 9001] = mul(%X[i0], 2.0) }"""),
        "hlsl", None, None),
    "words": (read("""
        func @f(%X: f16[37]) -> (%Y) { %Y: f16[i0 < 37] = mul(%X[i0], 2.0) }"""),
        "hlsl", None, "6.0"),
    "rows": (read("""
        func @f(%X: f32[3, 37]) -> (%S, %Y) {
          %S: f32[i0 < 3] = sum[r1 < 37] %X[i0, r1]
          %Y: f32[i0 < 3, i1 < 37] = sub(%X[i0, i1], %S[i0])
        }"""), "opencl", "cpu", None),
    "pooled": (pool, "opencl", "cpu", None),
    "packed": (read("""
        func @f(%X: f32[38, 3]) -> (%Y) { %Y: f32[i0 < 3, i1 < 38] = neg(%X[i1, i0]) }"""),
        "opencl", "cpu", None),
    "crossed": (lambda: normalize_layer(512, 128), "hlsl", None, None),
    "pieces": (lambda: read_case("sum_of_everything"), "wgsl", None, None),
    "all": (lambda: read_case("two_kernels"), "opencl", "cpu", None),
    "thirds": (lambda: read_case("resample_grad_thirds"), "opencl", "cpu", None),
    "attention, vectors": (Attention(17, 17, mask="causal").make, "opencl", "cpu", None),
    "attention, work items": (
        Attention(65, 40, heads=1, mask="causal").make, "opencl", "gpu", None,
    ),
    "matrices": (lambda: Product(33, 34, 40, dtype="f16").make(), "hlsl", None, None),
}  # fmt: skip
MATRICES = {"matrices": "8x8x8/8"}
"""Where a case has a matrix instruction."""
SCRIPTS = {"packed": "pack i1 4"}
"""Where a case is scheduled by a script, and by no rule."""


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@dataclasses.dataclass
class Made:
    """The kernels of a case, the nest of each, and how it is lowered again from another one."""

    function: ir.Function
    kernels: list[k.Kernel]
    nests: list[Nest]
    calls: list[Callable[[Nest], k.Kernel]]
    inputs: dict[str, Array]
    wanted: dict[str, Array]

    def lower(self, number: int, nest: Nest) -> k.Kernel:
        with replaced(assemble, "choose", lambda *_, **__: nest):
            return self.calls[number](nest)

    def catch(self, number: int, nest: Nest) -> str:
        """What finds out that a nest is broken which the verifier lets pass."""
        try:
            kernel = self.lower(number, nest)
        except (InternalError, DmlcError):
            return KERNEL
        except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError):
            return LOWERING
        if is_same(kernel, self.kernels[number]):
            return SAME
        kernels = [*self.kernels[:number], kernel, *self.kernels[number + 1 :]]
        try:
            got = run_kernels(self.function, kernels, self.inputs, misaligned=1)
        except KernelFault:
            return FAULT
        except InternalError:
            return KERNEL
        close = all(np.allclose(got[n], v, 1e-5, 1e-5, equal_nan=True)
                    for n, v in self.wanted.items())  # fmt: skip
        return OTHER if close else RESULT


def is_same(first: k.Kernel, second: k.Kernel) -> bool:
    """Whether two kernels are the same, but for what comments say."""
    return dataclasses.replace(first, schedule=second.schedule) == second


def make(case: str) -> Made:
    """The kernels of a case."""
    build, target, profile, model = CASES[case]
    nests: list[Nest] = []
    calls: list[Callable[[Nest], k.Kernel]] = []
    choose, make_kernel = assemble.choose, assemble.make_kernel

    def watch(*given: Any, **options: Any) -> Nest:
        if case in SCRIPTS:
            function, phases, _, limits, *_ = given
            script = parse_script(SCRIPTS[case])
            nests.append(apply(naive(phases, options["count"]), function, limits, *script))
        else:
            nests.append(choose(*given, **options))
        return nests[-1]

    def lower(*given: Any, **options: Any) -> k.Kernel:
        calls.append(lambda _: make_kernel(*given, **options))
        return make_kernel(*given, **options)

    with replaced(assemble, "choose", watch), replaced(group, "make_kernel", lower):
        function, kernels = make_kernels(
            build(), target, profile, shader_model=model, steps=ONLINE,
            matrix_instruction=MATRICES.get(case),
        )  # fmt: skip
    assert len(nests) == len(calls) == len(kernels)
    random = np.random.default_rng(7)
    inputs = {
        p.name: random.integers(-3, 4, [int(e) for e in p.extents]).astype(p.dtype.dtype)
        for p in function.parameters
    }
    inputs |= {name: np.abs(value) + 1 for name, value in inputs.items() if "ariance" in name}
    return Made(function, list(kernels), nests, calls, inputs, evaluate(function, inputs))


def find(kind: str, cases: Sequence[str], most: int | None = None) -> Counter[tuple[str, str]]:
    """What finds out the mutants of a kind, by case; so many of a nest at most, spread evenly, and
    of those that the verifier lets pass the first one."""
    found: Counter[tuple[str, str]] = Counter()
    for case in cases:
        if case not in KNOWN:
            KNOWN[case] = make(case)
        made = KNOWN[case]
        for number, nest in enumerate(made.nests):
            mutants = list(list_mutants(nest, kind))
            step = 1 if most is None else max(1, -(-len(mutants) // most))
            passed = [mutant for mutant in mutants[::step] if not is_refused(mutant)]
            found[VERIFIER, case] += len(mutants[::step]) - len(passed)
            passed = passed[: None if most is None else 1]
            found.update((made.catch(number, mutant), case) for mutant in passed)
    return +found


def is_refused(nest: Nest) -> bool:
    """Whether the verifier finds out that a nest is broken."""
    try:
        verify_nest(nest)
    except InternalError:
        return True
    return False


KNOWN: dict[str, Made] = {}


def main(wanted: Sequence[str]) -> int:
    for kind in wanted or KINDS:
        begun = time.time()
        found = find(kind, list(CASES))
        by: Counter[str] = Counter()
        for (finder, _), count in found.items():
            by[finder] += count
        loose = sorted({case for (finder, case) in found if finder == OTHER})
        print(f"{kind}: {dict(by)} {loose} {time.time() - begun:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
