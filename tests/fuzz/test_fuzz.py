"""A few cases of every kind on every device, and that wrong results would be found and cut down.

`python -m tests.fuzz` runs as many as there is time for: see README.md beside this file.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dmlc.scalars import DataType as T
from dmlc.source import UnavailableError
from tests.fuzz import __main__ as main
from tests.fuzz import devices
from tests.fuzz.cases import Case, Statement, Tensor
from tests.fuzz.check import Checker, Finding
from tests.fuzz.folds import fold, mean
from tests.fuzz.operations import apply
from tests.fuzz.possible import (
    DEVICE,
    FLUSHING,
    REFERENCE,
    Floats,
    Wholes,
    cast,
    everything,
    find_wrong,
    known_floats,
    load,
)
from tests.fuzz.run import KINDS, run
from tests.fuzz.trees import Apply, Cast, Choose, Name, Number, Read, Reduce, Variable, show

BATCHES = 5
"""Of each kind, on all backends. They are the same every time."""


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("kind", KINDS)
def test_a_few_cases(kind: str) -> None:
    tally = run(kind, 1, BATCHES, tuple(devices.BACKENDS), shrink_seconds=20)
    assert not tally.findings, str(tally.findings[0])
    assert tally.ran["reference"] >= BATCHES
    assert tally.ran["opencl cpu"] >= BATCHES


def test_backends_that_cannot_run_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package that is missing is no finding."""

    def find() -> object:
        raise UnavailableError("the package wgpu is not installed")

    wgsl = dataclasses.replace(devices.BACKENDS["wgsl"], find=find)
    monkeypatch.setitem(devices.BACKENDS, "wgsl", wgsl)
    monkeypatch.setitem(devices.BACKENDS, "other", dataclasses.replace(wgsl, find=None))
    chosen = main.choose_backends(None)
    assert "wgsl" not in chosen
    assert {"reference", "other"} <= {*chosen}
    said = "without wgsl: error: the package wgpu is not installed"
    assert said in capsys.readouterr().err
    assert main.choose_backends(["reference"]) == ["reference"]
    with pytest.raises(SystemExit) as left:
        main.choose_backends(["wgsl"])
    assert left.value.code == 2


# What would be found ----------------------------------------------------------------------


X, Y = Name(T.FLOAT32, "X"), Name(T.FLOAT32, "Y")


def make_case() -> Case:
    """Two outputs, the second of which adds."""
    tensors = tuple(Tensor(name, T.FLOAT32, (5, 3), "moderate") for name in "XYW")
    sum_ = Apply(T.FLOAT32, "add", (X, Y))
    chosen = Choose(T.FLOAT32, Apply(T.BOOL, "lt", (X, Number(T.FLOAT32, 0.5))), sum_, X)
    statements = (
        Statement("Z0", Apply(T.FLOAT32, "mul", (X, Name(T.FLOAT32, "W"))), T.FLOAT32),
        Statement("Z1", Apply(T.FLOAT32, "abs", (chosen,)), T.FLOAT32),
    )
    return Case(tensors, statements, (5, 3), seed=1)


def plant(monkeypatch: pytest.MonkeyPatch, fault: type[Exception] | None = None) -> None:
    """Has the reference add wrongly in the last bit, or fail, where a function adds."""

    def evaluate(function, inputs):
        found = dict(devices.evaluate(function, inputs))
        if "add" in str(function):
            if fault is not None:
                raise fault("planted")
            found = {n: np.nextafter(a, np.float32(math.inf)) for n, a in found.items()}
        return found

    wrong = dataclasses.replace(devices.BACKENDS["reference"], run=evaluate)
    monkeypatch.setitem(devices.BACKENDS, "reference", wrong)


def test_a_wrong_bit_is_found_and_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case()
    Checker(("reference",)).check(case)
    plant(monkeypatch)
    checker = Checker(("reference",))
    with pytest.raises(Finding) as raised:
        checker.check(case)
    small = checker.shrink(case, raised.value)
    assert "reference: wrong float32" in str(small)
    assert "Z1 = X + Y" in str(small)
    assert "Z0" not in str(small)
    assert "| W |" not in str(small)
    assert "FLOAT32[1, 1]" in str(small)


def test_an_exception_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, KeyError)
    checker = Checker(("reference",))
    with pytest.raises(Finding) as raised:
        checker.check(make_case())
    assert "reference: KeyError in test_fuzz.py evaluate" in str(raised.value)


def test_a_bound_that_is_too_small_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = tuple(Tensor(name, T.FLOAT32, (50,), "moderate") for name in "XY")
    twice = Apply(T.FLOAT32, "add", (Apply(T.FLOAT32, "mul", (X, Y)), Y))
    case = Case(tensors, (Statement("Z", twice, T.FLOAT32),), (50,), seed=1)
    Checker(("bounds",)).check(case)
    nothing = {"Z": np.zeros(50)}
    monkeypatch.setattr(devices, "bound_errors", lambda function, inputs: nothing)
    with pytest.raises(Finding, match="bounds: BoundError"):
        Checker(("bounds",)).check(case)


def test_what_is_refused_wrongly_is_found() -> None:
    case = make_case()
    wrong = Statement("Z0", Cast(T.FLOAT32, Name(T.FLOAT32, "nowhere")), T.FLOAT32)
    with pytest.raises(Finding, match="unknown name"):
        Checker(("reference",)).check(dataclasses.replace(case, statements=(wrong,)))


def test_what_reads_only_what_depends_on_positions_depends_on_them_too() -> None:
    # So the reference adds it up in FLOAT32: 0.6944445, and not 0.69444442.
    here = Apply(T.BOOL, "eq", (Number(T.INDEX, 2), Variable(T.INDEX, "h")))
    read = Read(T.FLOAT32, "t", (Number(T.INDEX, 0),))
    quotient = Apply(T.FLOAT32, "div", (Number(T.FLOAT32, 0.5), Number(T.FLOAT32, 0.4)))
    mean = Reduce(T.FLOAT32, "mean", (("h", 9),), None, Choose(T.FLOAT32, here, quotient, read))
    statements = (
        Statement("t", Number(T.FLOAT32, 0.0), None, (("i", 1),)),
        Statement("Z", Reduce(T.FLOAT32, "sum", (("k", 5),), None, mean), T.FLOAT32, (("i", 1),)),
    )
    case = Case((Tensor("X", T.FLOAT32, (1,)),), statements, (), seed=1)
    Checker(("reference", "kernels cpu")).check(case)


def test_text_has_the_parentheses_that_it_needs() -> None:
    a, b, c = (Name(T.FLOAT32, n) for n in "abc")

    def of(name, *operands):
        return Apply(T.FLOAT32, name, operands)

    assert show(of("sub", a, of("sub", b, c))) == "a - (b - c)"
    assert show(of("sub", of("sub", a, b), c)) == "a - b - c"
    assert show(of("mul", of("neg", a), of("add", b, c))) == "-a * (b + c)"
    assert show(of("add", Number(T.FLOAT32, 1.0), Number(T.FLOAT32, -2.0))) == (
        "cast(1.0, FLOAT32) + -2.0"
    )


# What may be ------------------------------------------------------------------------------


def floats(*values: float) -> Floats:
    return known_floats(T.FLOAT32, np.array(values))


def test_arithmetic_is_exact_where_it_can_be() -> None:
    made = apply(DEVICE, "add", floats(1e8, 1.0, math.inf), floats(1.0, 2.0, -math.inf))
    wrong = find_wrong(made, np.array([1e8, 3.0, math.nan], np.float32))
    assert not wrong.any()
    assert find_wrong(made, np.array([1e8 + 8, 3.0000002, 0.0], np.float32)).all()
    wide = apply(REFERENCE, "add", floats(1e8), floats(1.0))
    assert isinstance(wide, Floats)
    assert wide.low[0] == 1e8 + 1


def test_the_sign_of_zero_counts_where_it_is_certain() -> None:
    made = apply(DEVICE, "mul", floats(0.0), floats(-1.0))
    assert find_wrong(made, np.array([0.0], np.float32)).all()
    assert not find_wrong(made, np.array([-0.0], np.float32)).any()
    total = fold(DEVICE, "sum", floats(-0.0, 0.0), None, (2,), 1)
    assert not find_wrong(total, np.array(-0.0, np.float32)).any()


def test_a_mean_may_have_no_elements() -> None:
    guard = Wholes(T.BOOL, np.ones((0, 3), np.bool_), np.asarray(True))
    made = mean(DEVICE, floats(1.0), guard, (0, 3), 1)
    assert isinstance(made, Floats)
    assert made.low.shape == (0,)


def test_what_is_uncertain_stays_so() -> None:
    near = apply(DEVICE, "div", floats(1.0, 8.0), floats(3.0, 2.0))
    equal = apply(DEVICE, "eq", near, floats(1 / 3, 4.0))
    assert isinstance(equal, Wholes)
    assert not equal.known.any()
    above = apply(DEVICE, "gt", near, floats(0.3, 5.0))
    assert isinstance(above, Wholes)
    assert above.known.all()
    assert above.value.tolist() == [True, False]
    whole = cast(DEVICE, near, T.INT32)
    assert isinstance(whole, Wholes)
    assert whole.known.tolist() == [True, False]


def test_zeros_between_infinities_are_seen() -> None:
    wild = apply(DEVICE, "mul", floats(0.0), everything(T.FLOAT32, (1,)))
    assert not find_wrong(wild, np.array([0.0], np.float32)).any()
    assert not find_wrong(wild, np.array([math.nan], np.float32)).any()
    assert find_wrong(wild, np.array([1.0], np.float32)).all()
    wild = apply(DEVICE, "div", everything(T.FLOAT32, (1,)), floats(math.inf))
    assert not find_wrong(wild, np.array([-0.0], np.float32)).any()
    assert find_wrong(wild, np.array([1.0], np.float32)).all()


def test_denormals_may_be_flushed_where_the_rules_say_so() -> None:
    tiny = floats(1e-40)
    for rules, allowed in ((DEVICE, False), (FLUSHING, True)):
        made = apply(rules, "mul", tiny, floats(1.0))
        assert find_wrong(made, np.zeros(1, np.float32)).all() != allowed
        assert not find_wrong(made, np.array([1e-40], np.float32)).any()


def test_whole_numbers_wrap_and_divide_as_documented() -> None:
    least, one = (load(T.INT8, np.array([v], np.int8)) for v in (-128, -1))
    zero = load(T.INT8, np.zeros(1, np.int8))
    for name, other, wanted in (
        ("div", one, -128), ("mod", one, 0), ("div", zero, 0), ("mod", zero, 0), ("add", one, 127),
        ("shift_right", one, -1),
    ):  # fmt: skip
        made = apply(DEVICE, name, least, other)
        assert isinstance(made, Wholes)
        assert made.value.tolist() == [wanted], name


def test_positions_take_the_first_and_nan_before_all() -> None:
    values = floats(3.0, math.nan, 5.0, math.nan, 5.0)
    found = fold(DEVICE, "argmax", values, None, (5,), 1)
    assert isinstance(found, Wholes)
    assert found.value == 1
    guard = load(T.BOOL, np.array([True, False, True, False, True]))
    assert isinstance(guard, Wholes)
    found = fold(DEVICE, "argmax", values, guard, (5,), 1)
    assert isinstance(found, Wholes)
    assert found.value == 2
