"""Schedules of a person's own: files of them, which kernels they are for, and what is refused."""

from __future__ import annotations

import dataclasses
import pickle
import random
import re
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import ir, library
from dmlc.api import plan_run
from dmlc.binding import Operator
from dmlc.codegen.targets import find_dialect
from dmlc.devices import find_device, load_function
from dmlc.inspection.launches import estimate_kernels
from dmlc.inspection.model import DEVICES
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.nodes import Kernel
from dmlc.kernel.target import find_profile
from dmlc.loops.naive import naive
from dmlc.loops.script import ScheduleError
from dmlc.loops.sections import Sections, print_sections, read_sections
from dmlc.lowering.assemble import name_kernel
from dmlc.pipeline import Steps, compile_kernels, describe_schedules, make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.source import Source, UnsupportedError
from dmlc.testing.examples import read_cases
from dmlc.testing.memory import check_run
from dmlc.testing.schedules import DRAWN, SCALAR, draw_steps, follow
from dmlc.transform.loops import part_loops
from tests.kernel.schedules import FOLDS, FUNCTIONS
from tests.schedules.nest_mutants import resample
from tests.schedules.rules import TARGETS, choose_for

PRODUCT = """
func @product(%A: f32[24, 512], %B: f32[512, 40]) -> (%C) {
  %C: f32[i0 < 24, i1 < 40] = sum[r0 < 512] mul(%A[i0, r0], %B[r0, i1])
}"""
ROWS = """
func @rows(%X: f32[6, 300]) -> (%Y) {
  %M: f32[i0 < 6] = max[r0 < 300] %X[i0, r0]
  %S: f32[i0 < 6] = sum[r0 < 300] exp(sub(%X[i0, r0], %M[i0]))
  %Y: f32[i0 < 6, i1 < 300] = div(exp(sub(%X[i0, i1], %M[i0])), %S[i0])
}"""
LARGEST = """
func @largest(%X: f32[5, 300]) -> (%P) {
  %P: s32[i0 < 5] = argmax[r0 < 300] %X[i0, r0]
}"""
OPEN = """
func @mean(%X: f32[3, N]) -> (%Y) {
  %Y: f32[i0 < 3] = sum[r0 < N] %X[i0, r0]
}"""
PLAIN = """
func @plain(%X: f32[100, 64], %W: f32[64]) -> (%Y) {
  %Y: f32[i0 < 100, i1 < 64] = mul(%X[i0, i1], %W[i1])
}"""
COUNTED = """
func @counted(%X: f32[n]) -> (%Y) {
  %Y: f32[i0 < n] = add(%X[i0], 1.0)
}"""
SHIFTED = """
func @shifted(%X: f32[3, 28], %W: f32[3]) -> (%S, %Y) {
  %S: f32[i0 < 3] = sum[r1 < 28] %X[i0, r1]
  %T: f32[i0 < 3] = mul(%S[i0], %W[i0])
  %Y: f32[i0 < 3, i1 < 28] = add(%X[i0, i1], %T[i0])
}"""
HALVES = """
func @halves(%X: f16[100, 64]) -> (%Y) {
  %Y: f16[i0 < 100, i1 < 64] = mul(%X[i0, i1], %X[i0, i1])
}"""


def schedule(text: str) -> Steps:
    return Steps(schedule=Source("own.txt", text))


def make(function: str | ir.Function, text: str, profile: str = "gpu") -> tuple[Kernel, ...]:
    bound = ir.parse(function) if isinstance(function, str) else function
    return make_kernels(bound, "opencl", profile, steps=schedule(text))[1]


def run(function: str, text: str, profile: str = "gpu") -> dict[str, Array]:
    """What the kernels give in the interpreter; the reference gives about that."""
    bound = ir.parse(function)
    values = np.random.default_rng(0)
    inputs = {
        p.name: values.standard_normal([n if isinstance(n, int) else 700 for n in p.extents],
                                       np.float32) for p in bound.parameters
    }  # fmt: skip
    fused, kernels = make_kernels(bound, "opencl", profile, steps=schedule(text))
    found = run_kernels(fused, kernels, inputs, sizes=dict.fromkeys(bound.symbols(), 700))
    for name, wanted in evaluate(bound, inputs).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-4)
    return found


def list_titles(function: str, text: str, profile: str = "gpu") -> list[str]:
    return [kernel.title for kernel in make(function, text, profile)]


# What is printed --------------------------------------------------------------------------------


@pytest.mark.grid(16)
@pytest.mark.parametrize(("target", "profile"), TARGETS)
@pytest.mark.parametrize("name", library.names())
def test_what_is_printed_makes_the_same_kernels(
    name: str, target: str, profile: str | None
) -> None:
    operator = Operator(library.find(name).operators[name])
    function = next(read_cases(operator, operator.definition.examples[0])).call.function
    try:
        _, kernels = make_kernels(function, target, profile)
    except UnsupportedError:
        return  # HLSL has few operations of FLOAT64, and WGSL few types.
    shape = find_profile(profile or find_dialect(target).profiles[0])
    titles = [kernel.title for kernel in kernels]
    assert len(set(titles)) == len(titles)
    text = print_sections(kernels, target, shape)
    _, again = make_kernels(function, target, profile, steps=schedule(text))
    assert again == kernels


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("text", [PRODUCT, ROWS, LARGEST, OPEN, PLAIN])
def test_a_program_is_the_same_with_the_schedule_that_it_has(text: str, profile: str) -> None:
    function = ir.parse(text)
    program = dmlc.compile(function, profile=profile)
    printed = describe_schedules(function, "opencl", profile)
    assert program.with_schedule(printed) == program
    assert re.match(rf"target opencl {profile}\n\nkernel \w+\n  ", printed)


def test_a_kernel_shows_its_script_above_it() -> None:
    (kernel,) = dmlc.compile(ir.parse(PLAIN), profile="gpu").kernels
    (line,) = [line for line in kernel.source.splitlines() if "split i 4 as lane;" in line]
    assert line.startswith("//     ")
    assert "vector i: 4" not in kernel.source
    (product, *_) = dmlc.compile(ir.parse(PRODUCT), profile="cpu").kernels
    assert "\n//     panel 24 64 256 16\n" in product.source
    (first, *_) = dmlc.compile(resample(9, 24), profile="cpu").kernels
    assert re.search("\n//     line_buffer [0-9 ]+\n", first.source)


@pytest.mark.parametrize("numbers", ["12 16 64 8", "5 40 300 16", "24 7 100 8"])
def test_panels_of_ones_own(numbers: str) -> None:
    text = f"kernel C\npanel {numbers}"
    (kernel,) = make(PRODUCT, text, "cpu")
    assert kernel.script == (f"panel {numbers}",)
    run(PRODUCT, text, "cpu")


def test_a_rule_cuts_by_the_same_call() -> None:
    long = PRODUCT.replace("512", "32768")
    lines = describe_schedules(ir.parse(long), "opencl", "gpu").splitlines()
    (cut,) = [line.strip() for line in lines if "rfactor" in line]
    assert lines[2] == "kernel C"
    assert lines[3].strip() == cut
    first, second = make(long, f"kernel C\n{cut}")
    assert (first.title, first.cut, second.title) == ("C_parts", ("C", cut), "C")
    assert (first, second) == make_kernels(ir.parse(long), "opencl", "gpu")[1]


def test_parts_of_a_program_have_sections_under_names_of_their_own() -> None:
    """What runs before a loop over time, a step of it, and what runs after."""
    name = "directml.RNN"
    operator = Operator(library.find(name).operators[name])
    function = next(read_cases(operator, operator.definition.examples[0])).call.function
    program = dmlc.compile(function, profile="gpu")
    assert len(part_loops(function)) > 1
    assert program.with_schedule(describe_schedules(function, "opencl", "gpu")) == program
    (kernel,) = make(PLAIN, "")
    sections = Sections().follow([kernel])
    assert sections.rename(kernel).title == "Y.2"
    again = sections.follow([sections.rename(kernel)])
    assert again.rename(dataclasses.replace(kernel, cut=("M", "rfactor k 2"))).title == "Y.3"
    assert again.name("M") == "M"


# What is asked for ------------------------------------------------------------------------------


def test_a_script_of_ones_own_makes_the_kernel() -> None:
    text = "kernel Y\nsplit i0 8 as rows // a few\nbind rows group\n\nvectorize i1 16"
    (kernel,) = make(PLAIN, text, "cpu")
    assert kernel.script == ("split i0 8 as rows", "bind rows group", "vectorize i1 16")
    assert kernel.schedule[0] == "group i0 by 8 as rows: 0..100"
    run(PLAIN, text, "cpu")


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("points", [1, 7, 128, 511])
def test_split_k(points: int, profile: str) -> None:
    text = f"kernel C\nrfactor k {points}"
    assert list_titles(PRODUCT, text, profile) == ["C_parts", "C"]
    run(PRODUCT, text, profile)


def test_both_kernels_of_a_cut_reduction_have_sections() -> None:
    text = """
        kernel C
        rfactor k 64
        fuse i0 as i
        split i 32 as block
        bind block group
        bind i lane
        kernel C_parts
        axis row 8
        fuse piece as i
        fuse i as output
        bind output group
        share k row
    """
    first, second = make(PRODUCT, text)
    assert first.script[0] == "axis row 8"
    assert second.launch.group_size == 32
    run(PRODUCT, text)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("function", "cut"),
    [(LARGEST, "90"), (OPEN, "90"), (OPEN, "9 pieces"), (OPEN, "9 pieces 4"), (ROWS, "90")],
)
def test_reductions_of_all_kinds_are_cut(function: str, cut: str, profile: str) -> None:
    name = {LARGEST: "P", OPEN: "Y", ROWS: "S"}[function]
    cut = f"rfactor k {cut}"
    text = f"kernel {name}\n{cut}"
    titles = list_titles(function, text, profile)
    assert any(title.startswith(f"{name}_parts") for title in titles)
    run(function, text, profile)


def test_all_reductions_of_a_kernel_are_cut() -> None:
    assert list_titles(ROWS, "") == ["Y"]
    text = "kernel M\nrfactor k 100\nkernel S\nrfactor k 60"
    assert list_titles(ROWS, text) == ["M_parts", "S_parts", "Y"]
    run(ROWS, text)


def test_a_section_without_a_cut_is_one_kernel() -> None:
    long = PRODUCT.replace("512", "32768")
    assert list_titles(long, "") == ["C_parts", "C"]
    assert list_titles(long, "kernel C") == ["C"]


@pytest.mark.parametrize(
    ("calls", "launch"),
    [
        ("bind i group", ("n", 1, 1)),
        ("split i 64 as g\nbind g group\nbind i lane", ("n", 64, 64)),
        ("split i 8 as b\nbind b group\nvectorize i 4", ("n", 8, 1)),
    ],
)
def test_elements_that_are_counted_at_run_time(calls: str, launch: tuple[str, int, int]) -> None:
    function = ir.parse(COUNTED)
    steps = schedule(f"kernel Y\n{calls}")
    fused, (kernel,) = make_kernels(function, "hlsl", steps=steps)
    made = kernel.launch
    assert (made.count, made.per_group, made.group_size) == launch
    assert made.row == 65535
    x = np.arange(70, dtype=np.float32)
    got = run_kernels(fused, [kernel], {"X": x}, sizes={"n": 70})
    np.testing.assert_array_equal(got["Y"], x + 1)


def test_vectors_of_a_schedule_are_its_own_whatever_the_profile_is() -> None:
    calls = "vectorize k 4\nvectorize i1.2 4\ninterleave i0"
    for profile in ("cpu", "gpu"):
        (kernel,) = make(SHIFTED, f"kernel Y\n{calls}", profile)
        assert kernel.script == tuple(calls.splitlines())
        run(SHIFTED, f"kernel Y\n{calls}", profile)


KINDS = (("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", "gpu"), ("wgsl", "gpu"))


@pytest.mark.grid(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("target", "profile"), KINDS)
def test_random_scripts_are_right_or_refused(
    target: str, profile: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a rule cuts into kernels, and with it what no other test draws: work of open length,
    and profiles that have no vectors."""
    made = 0
    limits = find_dialect(target).limits
    for number, name in enumerate(FUNCTIONS):
        draw = random.Random(f"{target} {profile} {seed} {number}")
        a, b, c = (draw.randint(1, most) for most in (6, 7, 40))
        text = FUNCTIONS[name].format(
            a=a, b=b, c=c, two_a=2 * a, last_b=b - 1, fold=draw.choice(FOLDS)
        )
        function, lines = ir.parse(text.replace("s64", "s32")), list[str]()
        for each in choose_for(function, target, profile, monkeypatch):
            start = naive(each.phases, each.count)
            names = tuple(DRAWN) if limits.vector_lanes == 0 else SCALAR
            steps = draw_steps(draw, names)
            done, _ = follow(start, each.function, limits, steps, limits.group_size)
            lines += [f"kernel {name_kernel(each.function, each.phases)}", *map(str, done.script)]
        try:
            fused, kernels = make_kernels(
                function, target, profile, steps=schedule("\n".join(lines))
            )
        except ScheduleError:
            continue
        made += 1
        values = np.random.default_rng(seed)
        inputs = {p.name: values.integers(-2, 3, [int(n) for n in p.extents]).astype(np.float32)
                  for p in function.parameters}  # fmt: skip
        got = run_kernels(fused, kernels, inputs)
        for result, wanted in evaluate(function, inputs).items():
            np.testing.assert_array_equal(got[result], wanted, "\n".join(lines))
    assert made >= len(FUNCTIONS) // 2


# What is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "text", "message"),
    [
        (PLAIN, "kernel Z\nunroll i0", "own.txt:1:8: error: unknown kernel 'Z'"),
        (PLAIN, "unroll i0", "own.txt:1:1: error: 'unroll i0' is in no section"),
        (PLAIN, "kernel Y\n  unroll i0", "own.txt:2:3: error: unroll i0: too many steps"),
        (PLAIN, "kernel Y\nunroll j", "2:1: error: unroll j: no loop is called 'j': i0, i1 are"),
        (PLAIN, "kernel Y\nsplt i0 3", "2:1: error: splt i0 3: no primitive is called so"),
        (PLAIN, "kernel Y\nkernel Y", "2:8: error: kernel 'Y' has two sections"),
        (PLAIN, "kernel", "own.txt:1:1: error: expected 'kernel NAME'"),
        (PLAIN, "target", "own.txt:1:1: error: expected 'target NAME'"),
        (PLAIN, "target hlsl\nkernel Y", "'own.txt' has schedules for hlsl, and none for opencl"),
        (PLAIN, "kernel Y\nrfactor i1 8", "2:1: error: rfactor i1 8: kernel 'Y' reduces nothing"),
        (PLAIN, "kernel Y\naxis a 1024", "own.txt:1:8: error: a group of 'Y' has 1,024 work items"),
        (COUNTED, "kernel Y\nonce as o\nbind o group", "1:8: error: the elements of 'Y' are "),
        (COUNTED, "kernel Y\nnormalize i as j\nbind j group", "and its steps are not numbered"),
        (COUNTED, "kernel Y\nsplit i 1073741825", "a step has 1,073,741,824 points at most"),
        (COUNTED, "kernel Y\nsplit i 8", "the elements of 'Y' are counted when it runs"),
        (PRODUCT, "kernel C\nsplit k 4\nrfactor k 8", "3:1: error: rfactor k 8: a section begins"),
        (PRODUCT, "kernel C\nrfactor k 512", "2:1: error: rfactor k 512: 'k' has 512 points"),
        (PRODUCT, "kernel C\nrfactor i0 2", "rfactor i0 2: C is not reduced along a loop 'i0', "),
        (PRODUCT, "kernel C\nrfactor k", "2:1: error: rfactor k: it takes a loop and a number"),
        (PRODUCT, "kernel C\nrfactor k 8 pieces 2 3", "it is 'rfactor LOOP POINTS', or 'rfactor "),
        (PRODUCT, "kernel C\nrfactor k 8 pieces more", "'more' is no number that points are a"),
        (PRODUCT, "kernel C\nrfactor k 8 parts", "'parts' is not 'pieces'"),
        (PRODUCT, "kernel C\nrfactor k 600 pieces", "'k' has 512 points"),
    ],
)  # fmt: skip
def test_what_is_not_legal_is_refused_with_its_place(
    function: str, text: str, message: str
) -> None:
    with pytest.raises(ScheduleError) as refused:
        make(function, text)
    assert message in str(refused.value)


def test_a_refusal_says_what_loops_compute() -> None:
    with pytest.raises(ScheduleError) as refused:
        make(PRODUCT, "kernel C\nbind k group")
    assert "error: bind k group: work groups take the outermost loop" in str(refused.value)
    assert "note: loops: i0 computes C; i1 computes C; k reduces C" in str(refused.value)


def test_half_words_are_stored_in_pairs() -> None:
    function = ir.parse(HALVES)
    steps = schedule("kernel Y\nbind i group")
    with pytest.raises(ScheduleError, match="stores two elements at a time: 'pair' does that"):
        make_kernels(function, "hlsl", shader_model="6.0", steps=steps)
    steps = schedule("kernel Y\npair i\nbind pair group")
    make_kernels(function, "hlsl", shader_model="6.0", steps=steps)


def test_a_file_may_have_schedules_for_several_targets() -> None:
    dialect, (cpu, gpu) = find_dialect("opencl"), map(find_profile, ("cpu", "gpu"))
    text = "target opencl cpu\nkernel Y\nunroll i\ntarget hlsl\nkernel Y\npack i 2\nkernel Z"
    assert [
        str(c) for c in read_sections(Source("a", text), dialect.limits, cpu).named["Y"].calls
    ] == ["unroll i"]
    hlsl = read_sections(Source("a", text), find_dialect("hlsl").limits, gpu)
    assert list(hlsl.named) == ["Y", "Z"]
    with pytest.raises(ScheduleError, match="opencl cpu, hlsl, and none for opencl gpu"):
        read_sections(Source("a", text), dialect.limits, gpu)


# The example ----------------------------------------------------------------------------------

SCHEDULES = Path(__file__).resolve().parents[2] / "examples" / "schedules"
SPLIT_K = (SCHEDULES / "split_k.txt").read_text(encoding="utf-8")


def make_product(depth: int) -> ir.Function:
    tensors = {"ATensor": (1, 1, 64, depth), "BTensor": (1, 1, depth, 64)}
    described = {name: dmlc.TensorDesc("FLOAT32", sizes) for name, sizes in tensors.items()}
    return dmlc.operator("directml.GEMM").bind(described)


def test_split_k_is_short_and_faster_than_one_kernel() -> None:
    function = make_product(65536)
    times: list[dict[str, float]] = []
    for text in ("kernel OutputTensor", SPLIT_K):
        kernels = make_kernels(function, "opencl", "gpu", steps=schedule(text))
        taken = estimate_kernels(*kernels)
        times.append({d.name: sum(each[d.name] for each in taken) for d in DEVICES})
    one, split = times
    assert len(SPLIT_K.splitlines()) <= 10
    # 49 times on an H100, and 2 on what has eight compute units.
    assert all(1.5 * split[device.name] < one[device.name] for device in DEVICES)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_split_k_is_right(profile: str) -> None:
    function = make_product(4096)
    values = np.random.default_rng(0)
    given = {p.name: values.integers(-4, 4, [n for n in p.extents if isinstance(n, int)])
             for p in function.parameters}  # fmt: skip
    inputs = {name: each.astype(np.float32) for name, each in given.items()}
    wanted = np.matmul(*inputs.values())
    fused, kernels = make_kernels(function, "opencl", profile, steps=schedule(SPLIT_K))
    assert [kernel.title for kernel in kernels] == ["matrix_parts", "OutputTensor"]
    # Sums of small whole numbers are exact in any order.
    np.testing.assert_array_equal(run_kernels(fused, kernels, inputs)["OutputTensor"], wanted)
    program = dmlc.compile(function, profile=profile, schedule=SPLIT_K)
    found = dmlc.load_program(program, "opencl")(inputs)["OutputTensor"]
    np.testing.assert_array_equal(found, wanted)


def test_an_illegal_schedule_is_refused_with_its_reason() -> None:
    text = (SCHEDULES / "not_legal.txt").read_text(encoding="utf-8")
    with pytest.raises(
        ScheduleError, match=r"5:3: error: vectorize k 16: what is read and stored "
    ):
        make(make_product(65536), text)


# Programs ---------------------------------------------------------------------------------------


def test_a_program_of_ones_own_schedule_runs_on_a_device() -> None:
    program = dmlc.compile(ir.parse(PRODUCT)).with_schedule("kernel C\nrfactor k 100", "split.txt")
    values = np.random.default_rng(0)
    a, b = (values.standard_normal(s, np.float32) for s in ((24, 512), (512, 40)))
    found = dmlc.load_program(program, "opencl")({"A": a, "B": b})
    np.testing.assert_allclose(found["C"], a @ b, rtol=1e-4, atol=1e-4)
    assert [len(kernel["buffers"]) for kernel in program.manifest()["kernels"]] == [3, 2]


def test_what_is_compiled_again_has_the_same_settings() -> None:
    function = ir.parse(PRODUCT)
    settings = {"target": "hlsl", "float_controls": [32], "shader_model": "6.0"}
    program = dmlc.compile(function, **settings, root_signature=False)  # type: ignore[arg-type]
    text = "kernel C\nrfactor k 64"
    again = program.with_schedule(text)
    wanted = dmlc.compile(function, **settings, root_signature=False, schedule=text)  # type: ignore[arg-type]
    assert again == wanted != program
    assert again.with_schedule("") == program


def test_programs_go_to_other_processes() -> None:
    program = dmlc.compile(ir.parse(PLAIN))
    moved = pickle.loads(pickle.dumps(program))
    assert moved == program
    with pytest.raises(UnsupportedError, match="was not compiled from a function here"):
        moved.with_schedule("")


def test_a_program_that_nobody_compiled_takes_none() -> None:
    program = dataclasses.replace(dmlc.compile(ir.parse(PLAIN)), remake=None)
    with pytest.raises(UnsupportedError, match="was not compiled from a function here"):
        program.with_schedule("")


def test_a_run_by_ones_own_schedule() -> None:
    function = ir.parse(PRODUCT)
    a, b = np.ones((24, 512), np.float32), np.ones((512, 40), np.float32)
    split = "kernel C\nrfactor k 100"
    for text in (split, None, split):
        found = dmlc.run(function, {"A": a, "B": b}, schedule=text)
        np.testing.assert_array_equal(found["C"], np.full((24, 40), 512, np.float32))
        plan = plan_run(function, {"A": a, "B": b}, schedule=text)
        assert plan.executable is not None
        assert plan.executable.program == dmlc.compile(function, schedule=text)
    assert check_run(function, {"A": a, "B": b}, schedule=split) == []
    with pytest.raises(UnsupportedError, match="the reference has no kernels"):
        dmlc.run(function, {"A": a, "B": b}, device="reference", schedule=split)


def test_a_loaded_function_is_another_with_another_schedule() -> None:
    function, device = ir.parse(PRODUCT), find_device("opencl")
    assert device is not None
    plain = load_function(function, device)
    cut = load_function(function, device, schedule("kernel C\nrfactor k 64"))
    assert len(cut.program.kernels) == 2
    assert cut is load_function(function, device, schedule("kernel C\nrfactor k 64"))
    assert plain is load_function(function, device)
    assert compile_kernels(function, "opencl")[0] == plain.program
