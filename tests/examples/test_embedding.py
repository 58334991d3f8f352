"""The code generator of `examples/embedding`: what it writes compiles, and computes the same."""

from __future__ import annotations

import ctypes
import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dmlc import compiler, ir, library
from dmlc.catalog import operator
from dmlc.reference import evaluate
from dmlc.scalars import OPERATIONS, Array
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import find_within
from dmlc.testing.examples import read_cases
from examples.embedding import to_c

FOLDER = Path(to_c.__file__).parent
CC = ("cc", "-std=c11", "-O1", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC")


def build(functions: Sequence[ir.Function], folder: Path) -> ctypes.CDLL:
    """A library of the functions, each under its name."""
    (folder / "made.c").write_text("".join(map(to_c.emit, functions)), "utf-8")
    made = (*CC, f"-I{FOLDER}", "-o", folder / "made.so", folder / "made.c", "-lm")
    done = subprocess.run(made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "made.so"))


def call(library: ctypes.CDLL, function: ir.Function, inputs: dict[str, Array],
         sizes: dict[str, int]) -> dict[str, Array]:  # fmt: skip
    """What a compiled function gives. All its tensors are packed."""
    sized = ir.specialize(function, sizes)
    results = {s.name: np.zeros(s.extents, s.dtype.dtype) for s in sized.stages
               if sized.result(s.name)}  # fmt: skip
    given = [np.ascontiguousarray(inputs[p.name]).ctypes.data_as(ctypes.c_void_p)
             for p in function.parameters]  # fmt: skip
    given += [array.ctypes.data_as(ctypes.c_void_p) for array in results.values()]
    getattr(library, function.name)(*given, *(ctypes.c_int64(sizes[s]) for s in function.symbols()))
    return results


def make_inputs(function: ir.Function) -> dict[str, Array]:
    random = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for p in function.parameters:
        if p.dtype.is_float:
            values = random.standard_normal(p.extents)
        else:
            values = random.integers(0, 2 if p.dtype is ir.DataType.BOOL else 4, p.extents)
        made[p.name] = np.asarray(values).astype(p.dtype.dtype)
    return made


def test_a_function_that_is_built(tmp_path: Path) -> None:
    """The bounding boxes of runs of points: integers, so that every bit is the reference's. Names
    are words of C, and names that the generator has itself."""
    t = ir.DataType
    points = ir.Parameter("points", t.INT32, ("N", "K", 2))
    first = ir.Parameter("double", t.INT32, ("N",))
    stages: list[ir.Stage] = []
    for name, combiner in (("total", "min"), ("v0", "max")):
        body = ir.BodyBuilder()
        own = body.index(0)
        value = body.load(points, own, body.reduced(0), body.index(1))
        taken = body.apply("ge", body.reduced(0), body.cast(body.load(first, own), t.INDEX))
        axes = ((0, "K"),)
        reduction = ir.Reduction(combiner, axes)
        stages.append(ir.Stage(name, t.INT32, ("N", 2), body.make(value, taken), reduction))
    body = ir.BodyBuilder()
    wide, last = body.apply("sub", body.read(stages[1]), body.read(stages[0])), body.symbol("K")
    empty = body.apply("ge", body.cast(body.load(first, body.index(0)), t.INDEX), last)
    extent = body.make(body.select(empty, body.constant(0, t.INT32), wide))
    stages.append(ir.Stage("extent", t.INT32, ("N", 2), extent))
    function = ir.Function("boxes", (points, first), tuple(stages), (ir.Result("extent"),))
    ir.verify(function)
    random = np.random.default_rng(1)
    inputs = {"points": random.integers(-99, 99, (5, 7, 2)).astype(np.int32),
              "double": np.array([0, 3, 6, 7, 2], np.int32)}  # fmt: skip
    made = build([function], tmp_path)
    found = call(made, function, inputs, {"N": 5, "K": 7})["extent"]
    assert np.array_equal(found, evaluate(function, inputs)["extent"])
    assert found[3].tolist() == [0, 0]


def test_strides_that_are_known_at_run_time(tmp_path: Path) -> None:
    """Rows in, columns out, by strides alone."""
    function = ir.parse("""func @turn(%x: s32[N, C]) -> (%y{1, N}) {
      %y: s32[i0 < N, i1 < C] = mul(%x[i0, i1], cast(add(i0, 1), s32))
    }""")
    x = np.arange(15, dtype=np.int32).reshape(3, 5)
    memory = call(build([function], tmp_path), function, {"x": x}, {"N": 3, "C": 5})["y"]
    expected = evaluate(function, {"x": x})["y"]
    assert np.array_equal(memory.reshape(5, 3).T, expected)


def test_the_librarys_functions_after_fusion(tmp_path: Path) -> None:
    """Each within the bounds that are computed for it; half precision is refused by name."""
    functions: list[tuple[ir.Function, ir.Function]] = []
    refused: list[str] = []
    for name in library.names():
        example = operator(name).definition.examples[0]
        case = next(read_cases(operator(name), example)).call
        bound = operator(name).bind(case.tensors, case.attributes)
        if (
            bound.symbols()
            or bound.loops
            or any(t.strides for t in (*bound.parameters, *bound.results))
        ):
            continue
        bound = dataclasses.replace(bound, name=f"f{len(functions)}")
        fused = compiler.fuse(compiler.simplify(bound)).function
        try:
            to_c.emit(fused)
        except ValueError as error:
            refused.append(str(error))
            continue
        functions.append((bound, fused))
    assert len(functions) > 0.8 * len(library.names())
    assert all("which C has no type for" in why or "left as an exercise" in why for why in refused)
    made = build([fused for _, fused in functions], tmp_path)
    for bound, fused in functions:
        inputs = make_inputs(bound)
        expected, allowed = evaluate(bound, inputs), bound_errors(bound, inputs)
        for name, found in call(made, fused, inputs, {}).items():
            assert find_within(found, expected[name], allowed[name]).all(), (str(bound), found)


def test_every_operation_is_in_the_header() -> None:
    text = (FOLDER / "support.h").read_text("utf-8")
    missing = [name for name in OPERATIONS if f"#define op_{name}(" not in text]
    assert missing == ["round_float16", "round_bfloat16"], "they take types that it refuses"


def test_it_loads_the_ir_alone() -> None:
    code = f"""import sys
sys.path.insert(0, {str(FOLDER)!r})
import to_c
print(*sorted(n.partition(".")[0] for n in sys.modules if n.startswith(("dmlc.", "lark", "jinja2",
    "click", "pyopencl"))))"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) == {"dmlc"}
