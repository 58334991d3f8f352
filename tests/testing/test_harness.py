"""The harness: what it finds, where, in which smallest case, and the same for the same seed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.oracle import find_expected
from dmlc.scalars import OPERATIONS, Array
from dmlc.source import UnavailableError, UnsupportedError
from dmlc.testing import harness
from dmlc.testing import outcome as outcomes
from dmlc.testing.case import Case
from dmlc.testing.fill import KINDS, MILD
from dmlc.testing.harness import CaseExport, OperatorTest, Settings, run_tests
from dmlc.testing.outcome import Cause, CheckKind, Outcome, Status
from dmlc.testing.power import Power, Weakness
from dmlc.testing.replay import read_failure
from dmlc.testing.variants import VariantRun

WRONG = Path(__file__).resolve().parent.parent / "data" / "testing" / "wrong.dml"


def line_of(text: str) -> int:
    """The line of the file of wrong operators that a text stands in."""
    lines = WRONG.read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return found


FOUND = {
    "FIRST_LARGEST": (CheckKind.EXAMPLE, Cause.EXPECTED, "expect y = [[0, 1, 0]]",
                      "x=FLOAT32[1,3] y=FLOAT32[1,3]", "opencl"),
    "CUBE_GRAD": (CheckKind.GRADIENT, Cause.GRADIENT, "dx = 3 * x * dy",
                  "x=FLOAT32[1] dy=FLOAT32[1] dx=FLOAT32[1]", None),
    "TURN": (CheckKind.CALL, Cause.FORMULA, "y[i] = x[(i + 4) % 8]",
             "x=FLOAT32[1] y=FLOAT32[1]", None),
    "DOUBLE": (CheckKind.EXAMPLE, Cause.EXPECTED, "expect y = [2, 5]",
               "x=FLOAT32[2] y=FLOAT32[2]", "opencl"),
    "PAIR_SUM": (CheckKind.CALL, Cause.FORMULA, "y[i] = x[2 * i] + x[2 * i + 1]",
                 "x=FLOAT32[1] y=FLOAT32[1]", None),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_each_wrong_operator_is_found(name: str, tmp_path: Path) -> None:
    kind, cause, text, call, device = FOUND[name]
    operator = dmlc.load(WRONG).operators[name]
    done = list(run_tests([operator], ["opencl"], cases=9, failures=tmp_path, variants=0))
    first, *_ = [outcome for outcome in done if outcome.status is Status.FAILED]
    assert (first.kind, first.cause, first.device) == (kind, cause, device)
    lines = WRONG.read_text().splitlines()
    place = [n for n, line in enumerate(lines, 1) if text in line][-1]
    # A gradient is wrong as a whole: its formula begins a line before.
    assert first.place == f"{WRONG}:{place - (kind is CheckKind.GRADIENT)}"
    assert first.call == call
    assert first.folder is not None
    again = read_failure(first.folder).run()
    assert (again.status, again.cause) == (Status.FAILED, cause)
    assert [p.name for p in tmp_path.iterdir()] == [first.folder.name]


def describe(done: Iterator[Outcome]) -> list[tuple[object, ...]]:
    """What was run and came of it, data too."""
    found: list[tuple[object, ...]] = []
    for outcome in done:
        assert outcome.case is not None
        data = {n: np.asarray(a).tobytes() for n, a in outcome.case.inputs.items()}
        found.append((outcome.operator, outcome.kind, outcome.title, outcome.call, data))
    return found


def test_the_same_seed_makes_the_same_cases_whatever_runs_beside() -> None:
    relu, reduce = (dmlc.operator(f"onednn.{name}") for name in ("ReLU", "ReduceMax"))
    alone = describe(run_tests([relu], ["reference"], seed=3, cases=6))
    beside = describe(run_tests([reduce, relu], ["reference"], seed=3, cases=6))
    assert [row for row in beside if row[0] == relu.name] == alone
    assert Counter(row[1] for row in alone)[CheckKind.CALL] == 6
    assert Counter(row[1] for row in alone)[CheckKind.REFUSED] > 0
    other = describe(run_tests([relu], ["reference"], seed=4, cases=6))
    assert [r for r in other if r[1] is CheckKind.CALL] != [
        r for r in alone if r[1] is CheckKind.CALL
    ]


def test_each_device_runs_the_same_cases() -> None:
    done = list(run_tests([dmlc.operator("onednn.ReLU")], ["opencl", "reference"], cases=3))
    ran = [o for o in done if o.kind is not CheckKind.REFUSED]
    pairs = list(zip(ran[::2], ran[1::2], strict=True))
    assert len(pairs) > 3
    for one, other in pairs:
        assert (one.device, other.device) == ("opencl", "reference")
        assert one.case is other.case


def test_an_exception_of_any_kind_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the run goes on."""

    def run_case(case: Case, device: str) -> dict[str, outcomes.Verdict]:
        raise [ZeroDivisionError("by zero"), dmlc.InternalError("broken")][
            len(case.inputs["src"]) % 2
        ]

    monkeypatch.setattr(outcomes, "run_case", run_case)
    done = list(run_tests([dmlc.operator("onednn.ReLU")], ["opencl"], cases=3))
    ran = [o for o in done if o.kind is not CheckKind.REFUSED]
    assert len(ran) > 3
    assert {o.cause for o in ran} == {Cause.EXCEPTION}
    assert {o.message for o in ran} == {"ZeroDivisionError: by zero", "internal error: broken"}


def test_what_a_device_cannot_express_is_told_apart() -> None:
    """Shaders have no exponentials of double precision."""
    text = """operator EXP {
        tensors {
            | Tensor | Kind   | Types    |
            | x      | Input  | f32, f64 |
            | y      | Output | f32, f64 | }
        constraints { x and y must have the same DataType. }
        compute { y = exp(x) }
        example "one" { x = [0] expect y = [1] }
    }"""
    operators = [dmlc.operator("onednn.ReLU"), dmlc.parse(text).operators["EXP"]]
    done = list(run_tests(operators, ["vulkan"], cases=0))
    unsupported = [o for o in done if o.status is Status.UNSUPPORTED]
    assert unsupported
    assert all("FLOAT64" in o.message and o.device == "vulkan" for o in unsupported)
    assert not any(o.status is Status.FAILED for o in done)


def test_a_forbidden_call_that_is_taken_fails() -> None:
    """At the constraint that forbids it."""
    operator = dmlc.load(WRONG).operators["PAIR_SUM"]
    (constraint,) = operator.definition.constraints
    done = run_tests([operator], ["reference"], cases=6)
    refused = [o for o in done if o.kind is CheckKind.REFUSED]
    assert {o.status for o in refused} == {Status.PASSED}
    cases = [o.case for o in refused if o.case is not None]
    case = next(case for case in cases if case.span == constraint.span)
    permitted = dataclasses.replace(operator.definition, constraints=())
    call = dataclasses.replace(case.call, operator=dmlc.Operator(permitted))
    found = outcomes.check_refusal(dataclasses.replace(case, call=call), "reference")
    assert (found.status, found.cause) == (Status.FAILED, Cause.TAKEN)
    assert found.place == f"{WRONG}:{constraint.span.line}"


def test_an_example_that_cannot_be_bound_is_an_outcome() -> None:
    text = WRONG.read_text().replace("expect y = [2, 5]", "expect y = [2, 5, 6]")
    operator = dmlc.parse(text, "wrong.dml").operators["DOUBLE"]
    first, *others = run_tests([operator], ["reference"], cases=3)
    assert (first.status, first.cause, first.kind) == (
        Status.FAILED, Cause.NO_CASE, CheckKind.EXAMPLE
    )  # fmt: skip
    assert first.place == f"wrong.dml:{line_of('expect y = [2, 5]')}"
    assert "'y' is [2] here, and [3] expected" in first.message
    assert others
    assert all(o.status is Status.PASSED for o in others)


def test_an_unknown_device_is_refused_before_any_work() -> None:
    with pytest.raises(dmlc.DmlcError, match="unknown device"):
        next(iter(run_tests([dmlc.operator("onednn.ReLU")], ["metal"])))


def test_a_case_that_would_let_wrong_results_pass_is_drawn_anew() -> None:
    """The cubes of denormal numbers are zeros, and so would zeros pass."""
    operator = dmlc.load(WRONG).operators["CUBE"]
    test = OperatorTest(operator, Settings(("reference",), cases=12, variants=0))
    drawn = [o for o in test.run() if o.kind is CheckKind.CALL]
    assert len(drawn) == 12
    kinds = {*KINDS, MILD} - {"denormal"}
    assert {o.title for o in drawn} == {f"{kind} data" for kind in kinds}
    assert not any(o.weakness for o in drawn)
    assert test.summarize().weak == 0


def test_weak_cases_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_weakness(case: Case, power: Power) -> Weakness:
        return Weakness(("anything would pass",))

    monkeypatch.setattr(harness, "find_weakness", find_weakness)
    operator = dmlc.load(WRONG).operators["CUBE"]
    test = OperatorTest(operator, Settings(("reference",), cases=4, variants=0))
    drawn = [o for o in test.run() if o.kind is CheckKind.CALL]
    assert [o.weakness for o in drawn] == ["anything would pass"] * 4
    summary = test.summarize()
    assert summary.weak == 4
    assert 0 < sum(row.hits > 0 for row in summary.rows) < len(summary.rows)
    assert 0 < summary.told_apart <= summary.exchanges


GELU = """
function inner(x) = 0.7978845608 * (x + 0.044715 * x * x * x)
operator GELU_TANH {
    tensors {
        | Tensor | Kind   | Types    |
        | x      | Input  | f32, f16 |
        | y      | Output | f32, f16 |
    }
    constraints { x and y must have the same DataType and Sizes. }
    compute { y = 0.5 * x * (1 + tanh(inner(x))) }
}
"""


def test_a_function_that_never_reaches_its_limit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where digits cancel: 1 - tanh(x)^2 is 0 for large x, times a polynomial of x. A tanh that
    ends a rounding below 1 gives 7.4 where 1 is right."""
    less = 1 - 2.0**-24
    saturating = dataclasses.replace(
        OPERATIONS["tanh"], evaluate=lambda x: np.clip(np.tanh(x), -less, less)
    )

    def saturate(instruction: ir.Instruction) -> ir.Instruction:
        is_tanh = isinstance(instruction, ir.Apply) and instruction.operation.name == "tanh"
        return dataclasses.replace(instruction, operation=saturating) if is_tanh else instruction

    def run_case(case: Case, device: str) -> dict[str, Array]:
        function = case.call.function
        stages = [
            dataclasses.replace(stage, body=dataclasses.replace(
                stage.body, instructions=tuple(map(saturate, stage.body.instructions))))
            for stage in function.stages
        ]  # fmt: skip
        return find_expected(dataclasses.replace(function, stages=tuple(stages)), case.inputs)

    gradient = dmlc.gradient(dmlc.parse(GELU).operators["GELU_TANH"], wrt=["x"])
    done = list(run_tests([gradient], ["reference"], cases=6, variants=0))
    drawn = [o.case for o in done if o.kind is CheckKind.CALL and o.case is not None]
    assert {o.status for o in done} == {Status.PASSED}
    monkeypatch.setattr(outcomes, "run_case", run_case)
    wrong = [outcomes.check_case(case, "reference") for case in drawn]
    assert Cause.RESULT in {o.cause for o in wrong}


CLOSE = """operator CLOSE {
    tensors {
        | Tensor | Kind   | Ranks | Types |
        | x      | Input  | 1     | f32   |
        | y      | Output | 1     | f32   |
    }
    constraints { x and y must have the same Sizes. }
    compute { y = FORMULA }
    example "held to nothing" { x = [1] expect y = [1] within 3 }
}"""


def test_other_data_are_drawn_where_bounds_are_larger_than_results() -> None:
    """Of one of five values it is a close call which whole number is next."""
    operator = dmlc.parse(CLOSE.replace("FORMULA", "ceil(x * 0.1 + 0.9)")).operators["CLOSE"]
    test = OperatorTest(operator, Settings(("reference",), cases=12, variants=0))
    drawn = [o for o in test.run_drawn() if o.kind is CheckKind.CALL]
    assert len(drawn) == 12
    titles = {o.title for o in drawn}
    assert "mild data" in titles
    assert "ties data" not in titles
    assert not any(o.weakness for o in drawn if o.title in ("random data", "mild data"))


def test_hostile_data_are_kept_and_their_bounds_are_said(tmp_path: Path) -> None:
    """The square of what lies far from 0 has no digits left for what is added to that."""
    formula = "(x + 1) * (x + 1) - x * x - 2 * x"
    operator = dmlc.parse(CLOSE.replace("FORMULA", formula)).operators["CLOSE"]
    settings = Settings(("reference",), cases=9, failures=tmp_path, variants=0)
    test = OperatorTest(operator, settings)
    done = list(test.run())
    assert not any(o.status is Status.FAILED for o in done)
    weak = [o for o in done if o.weakness]
    assert {o.title for o in weak} == {"held to nothing", "large data", "far data"}
    assert all("the bound is larger than the result at " in o.weakness for o in weak)
    assert all(o.looseness.is_weak for o in weak)
    summary = test.summarize()
    assert summary.weak == len(weak)
    weakest = summary.weakest
    assert weakest is not None
    assert weakest.call == "x=FLOAT32[1] y=FLOAT32[1]"
    assert list(tmp_path.iterdir()) == [weakest.folder]
    again = read_failure(tmp_path / (weakest.folder or "")).run()
    assert (again.status, again.weakness) == (Status.PASSED, weakest.weakness)


@pytest.mark.parametrize("count", [0, 2])
def test_some_drawn_calls_run_as_variants(count: int) -> None:
    operator = dmlc.load(WRONG).operators["CUBE"]
    done = list(run_tests([operator], ["opencl", "reference"], cases=6, variants=count))
    varied = [o for o in done if o.kind is CheckKind.VARIANT]
    assert [(o.device, o.status) for o in varied] == [
        ("opencl", Status.PASSED), ("reference", Status.PASSED),
    ] * count  # fmt: skip


def test_a_variant_that_disagrees_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def try_variants(*_: object) -> Iterator[VariantRun]:
        yield VariantRun("in parts", {}, reason="there are none")
        yield VariantRun("other strides", {}, error="the device is lost")

    monkeypatch.setattr(outcomes, "try_variants", try_variants)
    operator = dmlc.load(WRONG).operators["CUBE"]
    (failure,) = [o for o in run_tests([operator], cases=3) if o.status is Status.FAILED]
    assert (failure.kind, failure.cause) == (CheckKind.VARIANT, Cause.VARIANT)
    assert failure.message == "other strides: the device is lost"
    assert failure.call == "x=FLOAT32[1] y=FLOAT32[1]"


def test_memory_is_checked_of_an_example_and_a_drawn_call_on_each_device() -> None:
    relu = dmlc.operator("directml.ACTIVATION_RELU")
    done = list(run_tests([relu], ["opencl", "vulkan", "reference"], cases=6, variants=0,
                          check_memory=True))  # fmt: skip
    checked = [o for o in done if o.kind is CheckKind.MEMORY]
    # Of the first example, in a type that shaders have; then of the first drawn call.
    assert Counter((o.device, o.status) for o in checked) == {
        ("opencl", Status.PASSED): 2,
        ("vulkan", Status.PASSED): 2,
        ("reference", Status.UNSUPPORTED): 2,
    }
    assert {o.message for o in checked if o.status is not Status.PASSED} == {
        "error: the reference has no kernels whose memory could be checked [E0901]"
    }
    assert not any(o.status is Status.FAILED for o in done)
    plain = run_tests([relu], ["opencl"], cases=3, variants=0)
    assert CheckKind.MEMORY not in {o.kind for o in plain}


def test_what_goes_wrong_in_memory_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what was found, shrunk and kept."""

    def check_memory(case: Case, device: str) -> list[str]:
        return ["cpu: the kernel k stores into y at element 3", "gpu: a race"]

    monkeypatch.setattr(outcomes, "check_memory", check_memory)
    operator = dmlc.load(WRONG).operators["CUBE"]
    done = run_tests([operator], cases=3, failures=tmp_path, variants=0, check_memory=True)
    failures = [o for o in done if o.status is Status.FAILED]
    assert {(o.kind, o.cause, o.device) for o in failures} == {
        (CheckKind.MEMORY, Cause.MEMORY, "opencl")
    }
    assert failures[0].message == "cpu: the kernel k stores into y at element 3\ngpu: a race"
    assert failures[0].call == "x=FLOAT32[1] y=FLOAT32[1]"
    assert failures[0].folder is not None
    assert read_failure(failures[0].folder).run().cause is Cause.MEMORY


def test_a_tool_that_is_missing_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other error of a memory check is an outcome."""
    errors = [UnavailableError("no tool", notes=["get it"]), ZeroDivisionError("by zero")]

    def check_memory(case: Case, device: str) -> list[str]:
        raise errors[0]

    monkeypatch.setattr(outcomes, "check_memory", check_memory)
    operator = dmlc.load(WRONG).operators["CUBE"]
    with pytest.raises(UnavailableError, match="get it"):
        list(run_tests([operator], cases=3, check_memory=True))
    del errors[0]
    done = run_tests([operator], cases=1, variants=0, check_memory=True)
    assert {o.message for o in done if o.status is Status.FAILED} == {"ZeroDivisionError: by zero"}


def test_cases_are_exported_once_whatever_they_ran_on(tmp_path: Path) -> None:
    operator = dmlc.load(WRONG).operators["DOUBLE"]
    written: list[tuple[Case, Path]] = []

    def write(case: Case, folder: Path) -> None:
        if len(written) == 1:
            written.append((case, folder))
            raise UnsupportedError("shaders have no such thing")
        written.append((case, folder))

    settings = Settings(
        ("opencl", "reference"), cases=3, failures=tmp_path, export=CaseExport(tmp_path, write)
    )
    done = list(OperatorTest(operator, settings).run())
    exported = [o.status for o in done if o.kind is CheckKind.EXPORT]
    assert exported == [Status.PASSED, Status.UNSUPPORTED] + [Status.PASSED] * (len(written) - 2)
    failure = next(o for o in done if o.folder is not None)
    assert failure.folder is not None
    assert [folder.relative_to(tmp_path).as_posix() for _, folder in written] == [
        "DOUBLE-example-001",
        f"{failure.folder.name}/export",
        *[f"DOUBLE-drawn-call-{number:03}" for number in (1, 2, 3)],
    ]
    assert {case for case, _ in written} == {
        o.case for o in done if o.kind in (CheckKind.EXAMPLE, CheckKind.CALL)
    }


def test_an_error_of_an_export_is_an_outcome(tmp_path: Path) -> None:
    """But not a folder that cannot be written into."""
    errors: list[Exception] = [ZeroDivisionError("by zero")]

    def write(case: Case, folder: Path) -> None:
        raise errors[0]

    operator = dmlc.load(WRONG).operators["CUBE"]
    settings = Settings(("reference",), cases=1, variants=0, export=CaseExport(tmp_path, write))
    failures = [o for o in OperatorTest(operator, settings).run() if o.status is Status.FAILED]
    assert {(o.kind, o.cause, o.message) for o in failures} == {
        (CheckKind.EXPORT, Cause.EXPORT, "ZeroDivisionError: by zero")
    }
    errors[0] = dmlc.DmlcError("cannot write")
    with pytest.raises(dmlc.DmlcError, match="cannot write"):
        list(OperatorTest(operator, settings).run())
