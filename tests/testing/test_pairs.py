"""Gradients of a user's file, right and wrong, against what their forward operators imply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc.scalars import Array, DataType
from dmlc.testing.case import Call, Case
from dmlc.testing.harness import run_tests
from dmlc.testing.outcome import Cause, CheckKind, Status, check_gradient
from dmlc.testing.pairs import PairVerdict, check_differences, check_pair, is_pair
from dmlc.testing.replay import read_failure

FILE = """
operator CURVE {{
    tensors {{
        | Tensor | Kind   | Ranks  | Types         |
        | src    | Input  | 1 to 4 | f32, f16, s32 |
        | dst    | Output | 1 to 4 | f32, f16, s32 |
    }}
    constraints {{ src and dst must have the same DataType, DimensionCount, and Sizes. }}
    compute {{ dst = {forward} }}
}}
operator CURVE_GRAD {{
    forward {named}
    tensors {{
        | Tensor | Kind   | Ranks  | Types         |
        | src    | Input  | 1 to 4 | f32, f16, s32 |
        | {given} | Input  | 1 to 4 | f32, f16, s32 |
        | {wanted} | Output | 1 to 4 | f32, f16, s32 |
    }}
    constraints {{
        src, {given}, and {wanted} must have the same DataType, DimensionCount, and Sizes.
    }}
    compute {{ {wanted} = {gradient} }}
}}
"""
CHECKS = (check_pair, check_differences)
Check = Callable[[Case], dict[str, PairVerdict]]

X = np.linspace(-2, 2, 9)
"""Values with a zero among them, in the middle."""


def make_case(
    forward: str,
    gradient: str,
    *,
    given: str = "d_dst",
    wanted: str = "d_src",
    named: str = "CURVE",
    dtype: DataType = DataType.FLOAT32,
) -> Case:
    text = FILE.format(forward=forward, gradient=gradient, given=given, wanted=wanted, named=named)
    operator = dmlc.parse(text).operators["CURVE_GRAD"]
    desc = dmlc.TensorDesc(dtype, X.shape)
    call = Call(operator, {"src": desc, given: desc, wanted: desc}, {})
    inputs: dict[str, Array] = {"src": X, given: np.ones_like(X)}
    return Case(call, {n: a.astype(dtype.dtype) for n, a in inputs.items()}, "a line")


def find(check: Check, case: Case) -> PairVerdict:
    (verdict,) = check(case).values()
    return verdict


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("dtype", [DataType.FLOAT32, DataType.FLOAT16])
def test_a_right_gradient_holds(check: Check, dtype: DataType) -> None:
    case = make_case("src * src * src", "3 * src * src * d_dst", dtype=dtype)
    verdict = find(check, case)
    assert verdict.holds
    assert verdict.judged == 9
    assert str(verdict) == "the gradient with respect to 'src' agrees at 9 elements"


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("dtype", [DataType.FLOAT32, DataType.FLOAT16])
@pytest.mark.parametrize("factor", [2.0, 3.001, -3.0])
def test_a_wrong_factor_is_found(check: Check, dtype: DataType, factor: float) -> None:
    case = make_case("src * src * src", f"{factor} * src * src * d_dst", dtype=dtype)
    verdict = find(check, case)
    assert not verdict.holds
    assert verdict.of == "src"
    assert verdict.verdict.worst in [(0,), (8,)]


def test_the_verdict_says_where_and_by_how_much() -> None:
    found = check_pair(make_case("src * src * src", "2 * src * src * d_dst"))
    assert list(found) == ["d_src"]
    assert str(found["d_src"]) == (
        "the gradient with respect to 'src' at [0] is 8, and what its forward operator implies is "
        "12: they may be 1.05e-05 apart at most"
    )


@pytest.mark.parametrize("slope", ["0", "1", "0.5"])
def test_at_a_kink_any_slope_between_those_of_its_sides_will_do(slope: str) -> None:
    case = make_case("max(src, 0)", f"(src == 0 ? {slope} : (src > 0 ? 1 : 0)) * d_dst")
    assert find(check_pair, case).holds
    # Differences cannot tell, and say so.
    verdict = find(check_differences, case)
    assert verdict.holds
    assert verdict.judged == 8


@pytest.mark.parametrize("slope", ["-0.5", "1.5"])
def test_at_a_kink_no_other_slope_will_do(slope: str) -> None:
    case = make_case("max(src, 0)", f"(src == 0 ? {slope} : (src > 0 ? 1 : 0)) * d_dst")
    verdict = find(check_pair, case)
    assert not verdict.holds
    assert verdict.verdict.worst == (4,)


@pytest.mark.parametrize("check", CHECKS)
def test_a_gradient_that_is_wrong_at_one_smooth_point_is_found(check: Check) -> None:
    gradient = "src > 0 ? d_dst : (src < 0 ? exp(src) * d_dst : 0)"
    verdict = find(check, make_case("src > 0 ? src : exp(src) - 1", gradient))
    assert not verdict.holds
    assert verdict.verdict.worst == (4,)


def test_where_there_is_no_gradient_nothing_is_judged() -> None:
    case = make_case("sqrt(src)", "d_dst / (2 * sqrt(src))")
    verdict = find(check_pair, case)
    assert verdict.holds
    assert verdict.judged == 4


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("diff_dst", "diff_src"), ("ddst", "dsrc"), ("dstGradient", "srcGradient"), ("a", "b")],
)
def test_rows_are_found_by_the_habits_of_families(given: str, wanted: str) -> None:
    case = make_case("src * src", f"2 * src * {given}", given=given, wanted=wanted)
    found = check_pair(case)
    assert list(found) == [wanted]
    assert found[wanted].holds
    wrong = make_case("src * src", f"src * {given}", given=given, wanted=wanted)
    assert not check_pair(wrong)[wanted].holds


def test_src_is_the_result_where_the_attribute_says_so() -> None:
    name = "onednn.ReLUBackward"
    desc = dmlc.TensorDesc("f32", X.shape)
    tensors = {"src": desc, "diff_dst": desc, "diff_src": desc}
    text = str(dmlc.operator(name)).replace("operator ReLUBackward", "operator SqrtBackward")
    text = text.replace("forward ReLU", "forward Sqrt").replace(
        "src > 0 ? diff_dst : 0", "use_dst ? diff_dst / (2 * src) : diff_dst / (2 * sqrt(src))"
    )
    forward = str(dmlc.operator("onednn.ReLU")).replace("operator ReLU", "operator Sqrt")
    forward = forward.replace("max(src, 0)", "sqrt(src)")
    given = {"src": np.abs(X.astype(np.float32)) + 1, "diff_dst": np.ones(9, np.float32)}
    for written, holds in ((text, True), (text.replace("(2 * src)", "src"), False)):
        operator = dmlc.parse(forward + written).operators["SqrtBackward"]
        case = Case(Call(operator, tensors, {"use_dst": True}), given, "")
        assert find(check_pair, case).holds == holds
        # Of numbers drawn for 'src' some have no root.
        assert find(check_pair, case).judged > 3
        case = Case(Call(operator, tensors, {"use_dst": False}), given, "")
        assert find(check_pair, case).holds
        assert find(check_pair, case).judged == 9


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (make_case("src * src", "src * d_dst", named="CURVES"),
         "unknown forward operator 'CURVES'"),
        (make_case("src * src", "src * d_dst", dtype=DataType.INT32),
         "'CURVE_GRAD' cannot be held to 'CURVE': no gradient of floating-point numbers is given"),
        (make_case("src * src", "src * other", given="other", wanted="d_src", named="CURVE_GRAD2"),
         "unknown forward operator 'CURVE_GRAD2'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("check", CHECKS)
def test_what_cannot_be_compared_is_said(check: Check, case: Case, message: str) -> None:
    with pytest.raises(dmlc.DmlcError) as raised:
        check(case)
    assert raised.value.diagnostics[0].message == message
    assert raised.value.diagnostics[0].span is not None


def test_an_input_that_stands_for_nothing_is_said() -> None:
    text = FILE.format(forward="src * src", gradient="src * d_dst * extra", given="d_dst",
                       wanted="d_src", named="CURVE")  # fmt: skip
    row = "| d_dst | Input  | 1 to 4 | f32, f16, s32 |"
    text = text.replace(row, f"{row}\n        {row.replace('d_dst', 'extra')}")
    text = text.replace("src, d_dst, and", "src, d_dst, extra, and")
    operator = dmlc.parse(text).operators["CURVE_GRAD"]
    names = ("src", "d_dst", "extra", "d_src")
    call = Call(operator, dict.fromkeys(names, dmlc.TensorDesc("f32", (9,))), {})
    case = Case(call, dict.fromkeys(names[:3], np.ones(9, np.float32)), "")
    with pytest.raises(dmlc.DmlcError, match="its input 'extra' stands for nothing of that"):
        check_pair(case)


def test_the_forward_operator_may_be_of_the_library_or_imported() -> None:
    case = make_case("src * src", "src > 0 ? d_dst : 0", named="onednn.ReLU")
    assert is_pair(case.call.operator)
    assert find(check_pair, case).holds
    assert not find(check_pair, make_case("src", "d_dst", named="onednn.ReLU")).holds


def test_the_harness_finds_a_wrong_gradient_and_keeps_it(tmp_path: Path) -> None:
    operator = make_case("src / (1 + abs(src))", "d_dst / (1 + abs(src))").call.operator
    found = list(run_tests([operator], ["reference"], cases=12, failures=tmp_path))
    (failed,) = [o for o in found if o.folder is not None]
    assert failed.kind is CheckKind.GRADIENT
    assert failed.cause is Cause.GRADIENT
    assert failed.folder is not None
    assert failed.call in [f"src={t}[1] d_dst={t}[1] d_src={t}[1]" for t in ("FLOAT32", "FLOAT16")]
    # The folder has the forward operator too, and runs again.
    assert read_failure(failed.folder).run().cause is Cause.GRADIENT


def test_the_harness_says_what_shows_nothing() -> None:
    case = make_case("sqrt(-1 - src * src)", "d_dst")
    outcome = check_gradient(case, "reference")
    assert outcome.status is Status.UNSUPPORTED
    assert "nothing of the gradient can be compared" in outcome.message
    outcome = check_gradient(make_case("src", "d_dst", named="NOWHERE"), "reference")
    assert outcome.status is Status.UNSUPPORTED
    assert "unknown forward operator 'NOWHERE'" in outcome.message
