"""Positions that are certainly outside are found without running a kernel, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import KernelFault, Memory, run_kernel
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.verify import verify_kernel
from dmlc.source import InternalError

SIZES = {"x": 100, "y": 100}


def make(body: str, launch: str = "ceil(100 / 10) groups of 10") -> k.Kernel:
    return parse_kernel(f"""kernel f {{
        launch {launch}, index u32
        buffer x: f32 read
        buffer y: f32 read_write
        scalar m: index = 100
        array own: f32[8]
        let i: index = add(mul(group, 10), lane)
        {body}
    }}""")


def find_fault(body: str, launch: str = "ceil(100 / 10) groups of 10") -> str:
    try:
        verify_kernel(make(body, launch), "test", SIZES)
    except InternalError as error:
        return str(error)
    return ""


def run(kernel: k.Kernel, size: int = 100) -> None:
    run_kernel(kernel, {n: Memory(np.ones(size, np.float32), filled=True) for n in SIZES})


INSIDE = [
    "store y[i] = x[i]",
    "store y[sub(99, i)] = x[sub(add(i, 1), 1)]",
    "store y[mod(add(i, 7), 100)] = x[div(i, 2)]",
    "store y[i] = x[add(mul(div(i, 10), 10), mod(i, 10))]",
    "if lt(i, 90) { store y[add(i, 10)] = x[add(i, 10)] }",
    "if and(ge(i, 5), lt(i, 95)) { store y[sub(i, 5)] = x[add(i, 5)] }",
    "if not(ge(i, 95)) { store y[i] = x[add(i, 5)] }",
    "let inside: boolean = lt(add(i, 50), 100) if inside { store y[i] = x[add(i, 50)] }",
    "store y[i] = select(lt(i, 50), x[add(i, 50)], x[i])",
    "store y[i] = select(and(lt(i, 50), gt(x[add(i, 50)], 0.0)), 1.0, 0.0)",
    "store y[i] = x[min(mul(i, 2), 99)]",
    "for j in i .. 100 step 25 { let a: f32 = x[j] }",
    "let end: index = min(add(i, 8), m) for j in i .. end { let a: f32 = x[j] }",
    "for j in i .. 100 step 4 { if lt(j, 97) { let a: f32x4 = x[j]:f32x4 } }",
    "for j in 0 .. 0 { let a: f32 = x[1000] }",
    "if false { let a: f32 = x[1000] }",
    "prefetch x[1000]",
]
OUTSIDE = [
    ("store y[add(i, 1)] = 0.0", "elements 1 to 100 of 'y', which has 100"),
    ("store y[sub(i, 1)] = 0.0", "elements -1 to 98 of 'y', which has 100"),
    ("store y[i] = x[mul(div(i, 2), 3)]", "elements 0 to 147 of 'x'"),
    ("store y[i] = x[add(i, mod(i, 7))]", ""),  # They go together: that takes values.
    ("let a: f32 = x[100]", "element 100 of 'x'"),
    ("let a: f32x4 = x[i]:f32x4", "elements 0 to 102 of 'x'"),
    ("store_local own[lane] = 0.0", "elements 0 to 9 of 'own', which has 8"),
    ("if lt(i, 91) { let a: f32 = x[add(i, 10)] }", "elements 10 to 100 of 'x'"),
    ("let a: f32 = select(le(i, 50), x[add(i, 50)], x[i])", "elements 50 to 100 of 'x'"),
    ("if gt(x[i], 0.0) { let a: f32 = x[100] }", ""),  # Whether it is read takes values.
    ("for j in i .. 101 step 25 { let a: f32 = x[j] }", "elements 0 to 100 of 'x'"),
    ("for j in 0 .. 101 backwards { let a: f32 = x[j] }", "elements 0 to 100 of 'x'"),
    ("store y[i] = x[min(mul(i, 2), 100)]", ""),  # Odd positions are left out.
    ("store y[i] = x[max(add(i, 1), 50)]", "elements 50 to 100 of 'x'"),
]  # fmt: skip


@pytest.mark.parametrize("body", INSIDE)
def test_what_stays_inside(body: str) -> None:
    assert find_fault(body) == ""
    run(make(body))


@pytest.mark.parametrize(("body", "message"), OUTSIDE)
def test_what_goes_outside(body: str, message: str) -> None:
    found = find_fault(body)
    assert message in found
    assert bool(found) is bool(message)
    with pytest.raises(KernelFault, match=r"element \d+ of"):
        run(make(body))


def test_a_launch_of_unknown_size_is_left_alone() -> None:
    assert find_fault("let a: f32 = x[100]", "ceil(n / 10) groups of 10") == ""
    assert find_fault("let a: f32 = x[100]", "ceil(0 / 10) groups of 10") == ""


def test_rows_of_groups_are_padded() -> None:
    rows = "ceil(100 / 10) groups of 10 in rows of 4"
    assert "elements 0 to 119" in find_fault("let a: f32 = x[i]", rows)


# Random positions ---------------------------------------------------------------------------


@st.composite
def positions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        names = st.sampled_from(["i", "j", "lane", "group", "w"])
        return draw(names | st.integers(0, 12).map(str))
    name = draw(st.sampled_from(["add", "add", "sub", "mul", "div", "mod", "min", "max"]))
    inner = positions(depth - 1)
    right = st.integers(1, 12).map(str) if name in ("mul", "div", "mod") else inner
    return f"{name}({draw(inner)}, {draw(right)})"


@st.composite
def bodies(draw: st.DrawFn, depth: int = 2) -> str:
    if depth == 0:
        return f"let a: f32 = x[{draw(positions())}]"
    inner = draw(bodies(depth - 1))
    first, second = draw(positions(1)), draw(positions(1))
    compare = draw(st.sampled_from(["lt", "le", "gt", "ge", "eq"]))
    match draw(st.sampled_from(["if", "not", "for", "min"])):
        case "if":
            return f"if {compare}({first}, {second}) {{ {inner} }}"
        case "not":
            return f"if not(or({compare}({first}, {second}), lt(w, i))) {{ {inner} }}"
        case "for":
            ends, inside = f"{first} .. min({second}, 40) step 3", inner.replace("j", f"k{depth}")
            return f"for k{depth} in {ends} {{ {inside} }}"
        case _:
            ends, inside = f"{first} .. min({second}, 9)", inner.replace("w", f"k{depth}")
            return f"for k{depth} in {ends} {{ {inside} }}"


@settings(max_examples=300, deadline=None)
@given(bodies(), st.sampled_from([5, 12, 50, 100]))
def test_what_is_said_to_be_outside_is(body: str, size: int) -> None:
    kernel = make(f"for j in 2 .. 9 step 3 {{ let w: index = add(lane, 1) {body} }}")
    try:
        verify_kernel(kernel, "test", {"x": size})
    except InternalError:
        with pytest.raises(KernelFault, match=f"of 'x', which has {size}"):
            run(kernel, size)
