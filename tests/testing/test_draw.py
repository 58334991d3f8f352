"""Calls drawn from an operator's tables: permitted, varied, the same for the same seed; and calls
that the operator must refuse."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import dmlc
from dmlc import library
from dmlc.binding import Operator, TensorDesc
from dmlc.oracle import find_work, shorten
from dmlc.source import DmlcError, InternalError, UnsupportedError
from dmlc.testing.case import Call, Case, judge, lay_out, make_output, run_case, show_tensor
from dmlc.testing.draw import draw_calls
from dmlc.testing.fill import KINDS, fill
from dmlc.testing.forbid import draw_refused
from dmlc.testing.steps import count_steps, has_steps

PADDED = """
operator padded {
    attributes {
        | Attribute | Type         | Default |
        | Mode      | BOOL         | false   |
        | Counts    | UINT         |         |
        | Pads      | UINT[Counts] |         |
    }
    tensors {
        | Tensor | Kind           | Dimensions | Types    |
        | X      | Input          | { N, C }   | f32, f16 |
        | Scale  | Optional input | { C }      | f32      |
        | Y      | Output         | { H, W }   | f32, f16 |
    }
    constraints {
        X and Y must have the same DataType.
        require Counts == 2
        require Y.Sizes == X.Sizes + Pads
        require all(Pads <= 2), "few"
    }
    compute {
        Y[i, j] = X[min(i, N - 1), min(j, C - 1)]
    }
}
"""


def operator(text: str = PADDED) -> Operator:
    return next(iter(dmlc.parse(text).operators.values()))


def draw(drawn: Operator, count: int, seed: int = 1) -> list[Call]:
    return list(draw_calls(drawn, np.random.default_rng(seed), count))


TYPED = """
operator typed {
    tensors {
        | Tensor | Kind            | Types   |
        | X      | Input           | f32, s8 |
        | Parts  | Array of inputs | f32, s8 |
        | Y      | Output          | f32, s8 |
    }
    constraints {
        X and Y must have the same DataType and Sizes.
        X and Parts must have the same Sizes.
        require Parts.Count == 2
        require Parts[0].DataType == X.DataType
        require Parts[1].DataType != X.DataType
    }
    compute {
        Y = cast(Parts[1], s8) > 0 ? X : Parts[0]
    }
}
"""


def test_types_that_constraints_ask_for_are_found() -> None:
    calls = draw(operator(TYPED), 4)
    assert {call.tensors["X"].data_type.short for call in calls} == {"f32", "s8"}
    for call in calls:
        assert call.tensors["Parts[0]"].data_type is call.tensors["X"].data_type


def test_calls_are_permitted_and_have_every_choice() -> None:
    calls = draw(operator(), 40)
    assert len(calls) == 40
    for call in calls:
        call.operator.resolve(call.tensors, call.attributes)
    types = {c.tensors["X"].data_type.name for c in calls}
    assert types == {"FLOAT32", "FLOAT16"}
    assert {"Scale" in c.tensors for c in calls} == {False, True}
    assert {c.attributes.get("Mode") for c in calls} >= {False, True}
    assert any(d.strides is not None for c in calls for d in c.tensors.values())
    pads = [c.attributes["Pads"] for c in calls]
    assert any(2 in p for p in pads if isinstance(p, tuple))


RECURRENCES = """
operator POWER {
    attributes {
        | Attribute | Type |
        | N         | UINT |
    }
    tensors {
        | Tensor | Kind   | Dimensions | Types |
        | x      | Input  | { C }      | f32   |
        | y      | Output | { C }      | f32   |
    }
    constraints { require C > 1 }
    compute {
        steps = N * 1
        r[t : steps, c : C] = (r[t - 1, c] else 1) * x[c]
        y[c] = r[N - 1, c] else 1
    }
}
operator DECAY {
    tensors {
        | Tensor | Kind   | Dimensions | Types |
        | x      | Input  | { T }      | f32   |
        | y      | Output | { 1 }      | f32   |
    }
    constraints { require T > 0 }
    compute {
        h[t : T] = (h[t - 1] else 0) * x[t] + x[t]
        y[z] = h[T - 1]
    }
}
operator DECAY_GRAD {
    tensors {
        | Tensor | Kind   | Dimensions | Types |
        | x      | Input  | { T }      | f32   |
        | dy     | Input  | { 1 }      | f32   |
        | dx     | Output | { T }      | f32   |
    }
    constraints { require T > 0 }
    gradient of DECAY {}
}
"""


@pytest.mark.parametrize(
    ("name", "permitted"), [("POWER", {0, 1, 2}), ("DECAY", {1, 2}), ("DECAY_GRAD", {1, 2})]
)
def test_recurrences_are_drawn_with_few_steps(name: str, permitted: set[int]) -> None:
    """0 where the constraints permit it."""
    drawn = dmlc.parse(RECURRENCES).operators[name]
    assert has_steps(drawn.definition)
    calls = draw(drawn, 6)
    assert len(calls) == 6
    steps = [call.attributes.get("N", call.tensors["x"].sizes) for call in calls]
    found = [{n} if isinstance(n, int) else set(n or ()) for n in steps]
    assert [count_steps(call.binding) for call in calls] == found
    assert set.union(*found) >= permitted
    assert (0 in set.union(*found)) == (0 in permitted)


def test_what_goes_wrong_where_a_call_is_bound_is_not_found_while_drawing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bind(*_: object) -> None:
        raise InternalError("broken")

    monkeypatch.setattr(Operator, "bind", bind)
    assert len(draw(operator(), 3)) == 3


def test_a_seed_gives_the_same_calls() -> None:
    first, second, other = (list(map(str, draw(operator(), 10, s))) for s in (3, 3, 4))
    assert first == second != other


def test_what_the_reference_would_not_end_on_is_not_drawn() -> None:
    windows = operator("""
        operator windows {
            attributes {
                | Attribute | Type |
                | Size      | UINT |
            }
            tensors {
                | Tensor | Kind   | Dimensions | Types |
                | X      | Input  | { N }      | f32   |
                | Y      | Output | { N }      | f32   |
            }
            constraints {
                require Size < 2147483648
            }
            compute {
                Y[i] = sum[k : Size](X[k % N])
            }
        }""")
    calls = draw(windows, 200)
    assert len(calls) == 200
    assert max(find_work(shorten(call.function)) for call in calls) <= 1 << 26


def test_what_is_forbidden_is_refused_and_says_why() -> None:
    found = list(draw_refused(operator(), np.random.default_rng(2), 40))
    assert len({f.span.line for f in found}) >= 5
    for refused in found:
        with pytest.raises(DmlcError):
            refused.call.operator.bind(refused.call.tensors, refused.call.attributes)
        assert refused.why


def test_a_constraint_that_nothing_can_meet_gives_no_call() -> None:
    never = operator(PADDED.replace("require Counts == 2", "require Counts == 2 && Counts == 3"))
    assert draw(never, 2) == []


@pytest.mark.grid(9)
@pytest.mark.parametrize("name", library.names())
def test_calls_of_the_library_are_bound(name: str) -> None:
    """What an operator's constraints permit, its formula takes; what they forbid is refused."""
    found = dmlc.operator(name)
    calls = draw(found, 3)
    taken = 0
    for call in calls:
        with contextlib.suppress(UnsupportedError):
            taken += len(call.function.parameters) == len(call.inputs)
    assert taken > len(calls) / 2
    for refused in draw_refused(found, np.random.default_rng(5), 3):
        with pytest.raises(DmlcError):
            found.bind(refused.call.tensors, refused.call.attributes)


@pytest.mark.parametrize("kind", KINDS)
def test_data_has_the_layout_of_the_call(kind: str) -> None:
    random = np.random.default_rng(0)
    for call in draw(operator(), 10):
        arrays = fill(call, kind, random)
        assert arrays.keys() == call.inputs.keys()
        for name, array in arrays.items():
            desc = call.tensors[name]
            assert array.shape == desc.sizes
            assert array.dtype == desc.data_type.dtype
            if desc.strides is not None and array.size:
                assert tuple(s // array.itemsize for s in array.strides) == desc.strides


def test_layouts() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    turned = lay_out(values, TensorDesc("FLOAT32", (2, 3), (1, 2)))
    np.testing.assert_array_equal(turned, values)
    assert turned.strides == (4, 8)
    repeated = lay_out(values, TensorDesc("FLOAT32", (2, 3), (0, 1)))
    np.testing.assert_array_equal(repeated[0], repeated[1])
    output = make_output(TensorDesc("FLOAT16", (2, 2), (4, 1)))
    assert output.shape == (2, 2)
    assert (output.view(np.uint16) == 0xA5A5).all()
    assert show_tensor(TensorDesc("FLOAT32", (2, 3), (1, 2))) == "FLOAT32[2,3]{1,2}"


def test_a_case_is_run_and_judged() -> None:
    call = draw(dmlc.operator("directml.ACTIVATION_RELU_GRAD"), 1)[0]
    case = Case(call, fill(call, "random", np.random.default_rng(1)), "drawn")
    results = run_case(case, "reference")
    assert all(verdict.holds for verdict in judge(case, results).values())
    wrong = {name: array + np.ones((), array.dtype) for name, array in results.items()}
    assert not any(verdict.holds for verdict in judge(case, wrong).values())


def test_sizes_that_are_one_choice_of_several_are_drawn() -> None:
    """Also others than those that follow; and dimensions that only some tensors have."""
    followed: set[bool] = set()
    for call in draw(dmlc.operator("directml.AVERAGE_POOLING"), 12):
        image = {"InputTensor": call.tensors["InputTensor"]}
        with contextlib.suppress(dmlc.DmlcError):  # No window fits.
            sizes = call.operator.resolve(image, call.attributes).tensors["OutputTensor"].sizes
            followed.add(sizes == call.tensors["OutputTensor"].sizes)
    assert followed == {True, False}
    products = draw(dmlc.operator("directml.MATRIX_MULTIPLY_INTEGER"), 8)
    factors = [(call.tensors["ATensor"], call.tensors["BTensor"]) for call in products]
    ranks = {len(a.sizes or ()) - len(b.sizes or ()) for a, b in factors}
    assert len(ranks) > 1
