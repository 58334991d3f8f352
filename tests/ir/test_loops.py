"""Loops in the tensor IR: their forms, their meaning, and the rules they keep."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dmlc
from dmlc import compiler, ir
from dmlc.devices import compile_for, find_device, load_on
from dmlc.pipeline import Steps, compile_by
from dmlc.runtime import opencl
from dmlc.runtime.fences import check_stores
from dmlc.source import DmlcError, UnsupportedError
from dmlc.transform.loops import part_loops

RECURRENT = """func @layer(%X: f64[4, 3], %R: f64[3, 3]) -> (%Y) {
  loop {
    %h_before: f64[4, 3] = before %h
    %product: f64[i0 < 4, i1 < 3] = sum[r0 < 3] mul(%h_before[i0, r0], %R[i1, r0])
    %h: f64[i0 < 4, i1 < 3] = tanh(add(%X[i0, i1], %product[i0, i1]))
  }
  %Y: f64[i0 < 4, i1 < 3] = mul(%h[i0, i1], 2.0:f64)
}"""
BACKWARDS = RECURRENT.replace("loop {", "loop backwards {")


@pytest.mark.parametrize("text", [RECURRENT, BACKWARDS])
def test_reading_undoes_writing(text: str) -> None:
    function = ir.parse(text)
    assert str(function) == text
    assert ir.from_json(ir.to_json(function)) == function


@pytest.mark.parametrize("backwards", [False, True])
def test_each_step_reads_the_one_before(backwards: bool) -> None:
    random = np.random.default_rng(3)
    x, r = random.standard_normal((4, 3)), random.standard_normal((3, 3))
    found = compiler.evaluate(ir.parse(BACKWARDS if backwards else RECURRENT), {"X": x, "R": r})[
        "Y"
    ]
    state, expected = np.zeros(3), np.empty((4, 3))
    for step in reversed(range(4)) if backwards else range(4):
        state = np.tanh(x[step] + r @ state)
        expected[step] = 2 * state
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_sizes_beside_the_steps_may_be_symbols() -> None:
    text = RECURRENT.replace("f64[4, 3]", "f64[4, N]").replace("i1 < 3", "i1 < N")
    function = ir.parse(text.replace("f64[3, 3]", "f64[N, N]").replace("r0 < 3", "r0 < N"))
    settled = ir.specialize(function, {"N": 3})
    assert str(settled) == RECURRENT
    (step,) = (part.function for part in part_loops(function) if part.loop is not None)
    assert ir.specialize(step, {"N": 3}).one_step == part_loops(settled)[-2].function.one_step


OPEN = RECURRENT.replace("f64", "f32").replace("f32[4, 3]", "f32[T, 3]").replace("i0 < 4", "i0 < T")


@pytest.mark.parametrize("joins", [True, False], ids=["one kernel", "launches"])
@pytest.mark.parametrize("order", ["loop {", "loop backwards {"])
@pytest.mark.parametrize("device", ["opencl", "vulkan", "wgpu", "strict"])
def test_one_program_takes_any_number_of_steps(device: str, order: str, joins: bool) -> None:
    function = ir.parse(OPEN.replace("loop {", order))
    found = find_device(device)
    assert found is not None
    program = compile_for(function, found, Steps(joins=joins))
    assert [repeat.steps for repeat in program.repeats] == ([] if joins else ["T"])
    executable = load_on(program, found)
    random = np.random.default_rng(2)
    for steps in (1, 2, 9):
        given = {"X": random.standard_normal((steps, 3), np.float32),
                 "R": random.standard_normal((3, 3), np.float32)}  # fmt: skip
        wanted = compiler.evaluate(function, given)["Y"]
        np.testing.assert_allclose(executable(given)["Y"], wanted, 1e-5, 1e-6)


def test_no_step_of_any_number_stores_beside_its_tensors() -> None:
    function = ir.parse(OPEN)
    given = {"X": np.ones((5, 3), np.float32), "R": np.ones((3, 3), np.float32)}
    for joins in (True, False):
        program = compile_by(Steps(joins=joins), function)
        assert check_stores(program, opencl.load, given, {}) == []


def test_the_number_of_steps_has_another_name_than_a_step() -> None:
    with pytest.raises(UnsupportedError, match="a size called 'step'") as raised:
        compiler.make_kernels(ir.parse(re.sub(r"\bT\b", "step", OPEN)))
    assert "give the size another name" in str(raised.value)
    text = "func @f(%X: f32[step, 3]) -> (%Y) {\n  %Y: f32[i0 < 3] = sum[r0 < step] %X[r0, i0]\n}"
    function = ir.parse(text)
    assert dmlc.run(function, {"X": np.ones((5, 3), np.float32)})["Y"].tolist() == [5, 5, 5]


BROKEN = [
    ("%product[i0, i1]", "%product[sub(3, i0), i1]", "%h: it reads %product at another step"),
    ("%h_before[i0, r0]", "%h_before[0, r0]", "%product: it reads %h_before at another step"),
    ("before %h", "before %Y", "%h_before: %Y is no stage of its loop"),
    ("%h_before: f64[4, 3]", "%h_before: f64[4, 2]", "another type or other sizes than %h"),
    ("mul(%h[i0, i1], 2.0:f64)", "%h_before[i0, i1]", "for the stages of its loop alone"),
    ("%product[i0, i1]", "cast(step(4), f64)", "%h: a step is that of one step of a loop"),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN)
def test_broken_loops_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        ir.parse(RECURRENT.replace(old, new))
    assert message in str(raised.value).replace(" at %", " %")


def test_a_stage_of_a_loop_has_its_steps_and_holds_numbers() -> None:
    shorter = RECURRENT.replace("%product: f64[i0 < 4,", "%product: f64[i0 < 3,")
    with pytest.raises(DmlcError, match="a stage of a loop of 3 steps has others"):
        ir.parse(shorter)
    narrow = RECURRENT.replace("f64", "f16").replace("2.0:f16", "2.0")
    with pytest.raises(DmlcError, match="holds values as they are computed, not FLOAT16"):
        ir.parse(narrow)


def test_passes_outside_refuse_loops() -> None:
    function = ir.parse(RECURRENT)
    for refuses in (compiler.simplify, compiler.rewrite, compiler.find_fusion):
        with pytest.raises(UnsupportedError, match="'layer' has a loop over time, and"):
            refuses(function)
