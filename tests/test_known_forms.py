"""The known answers of every function and form of statement: complete, right here, and telling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlc import devices, known_answers
from dmlc.codegen.targets import TARGETS, find_dialect
from dmlc.devices import AnyDevice, find_device
from dmlc.kernel import nodes as k
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.rewrite import find_body, list_expressions
from dmlc.kernel.rewrite import walk as walk_expression
from dmlc.kernel.target import GPU
from dmlc.known_answers import explain_failure, forms, make_all_questions
from dmlc.known_answers.forms import list_questions, list_widths, list_word_questions
from dmlc.program import Program
from dmlc.runtime.answers import Question, Verdicts, ask, find_wrong
from dmlc.runtime.floats import CORRECT, LEAST, Division, FloatPromises
from dmlc.scalars import OPERATIONS, Array, DataType

FEW = 7
"""Every seventh question is asked in the tests; `dmlc devices --check` asks all."""


def find(name: str) -> AnyDevice:
    found = find_device(name)
    assert found is not None
    return found


@pytest.mark.parametrize("device", ["opencl", "vulkan", "wgpu", "strict:3"])
def test_the_devices_here_are_right(device: str) -> None:
    found = find(device)
    questions = list(make_all_questions(found))
    assert ask(questions[::FEW], lambda program: devices.load_on(program, found)) == ()


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[k.Kernel]:
    """The kernels that are made into questions from here on."""
    made: list[k.Kernel] = []

    def note(text: str, filename: str) -> k.Kernel:
        made.append(parse_kernel(text, filename))
        return made[-1]

    monkeypatch.setattr(forms, "parse_kernel", note)
    return made


def list_nodes(statements: tuple[k.Statement, ...]) -> list[Any]:
    """All statements and expressions."""
    found: list[Any] = []
    for statement in statements:
        found.append(statement)
        found += [p for e in list_expressions(statement) for p in walk_expression(e)]
        found += list_nodes(find_body(statement))
    return found


def test_everything_of_the_kernel_ir_is_asked_for(kernels: list[k.Kernel]) -> None:
    """Only what a kernel's scalars and places are is no question of its own."""
    for target in TARGETS:
        for dialect in target.dialects:
            list(list_questions(dialect, dialect.profiles[0]))
            list(list_word_questions(dialect, dialect.profiles[0]))
    nodes = [node for kernel in kernels for node in list_nodes(kernel.body)]
    kinds = {type(node) for node in nodes}
    # A device says itself which matrix instructions it has (`dmlc/runtime`).
    matrices = {k.FillMatrix, k.LoadMatrix, k.StoreMatrix, k.MultiplyMatrices}
    assert kinds | matrices >= {*k.Statement.__args__, *k.Expression.__args__}
    asked = {(n.operation.name, n.type.dtype) for n in nodes if isinstance(n, k.Operate)}
    opencl = find_dialect("opencl")
    for operation in OPERATIONS.values():
        for dtype in opencl.types:
            if operation.operands.accept(dtype) and dtype is not DataType.INDEX:
                assert (operation.name, operation.result_type(dtype)) in asked
    assert any(array.shared for kernel in kernels for array in kernel.arrays)
    loops = [node for node in nodes if isinstance(node, k.For)]
    assert {(n.unroll, n.rolled, n.backwards, n.step > 1) for n in loops} >= {
        (True, False, False, False), (False, True, False, False),
        (False, False, True, False), (False, False, False, True),
    }  # fmt: skip
    assert any(isinstance(node, k.Store) and node.streaming for node in nodes)


def test_widths_are_those_that_kernels_have() -> None:
    assert list_widths(find_dialect("opencl")) == (1, 4, 16)
    assert list_widths(find_dialect("opencl").of_profile(GPU)) == (1, 4)
    assert list_widths(find_dialect("hlsl")) == (1, 4)
    assert list_widths(find_dialect("wgsl")) == (1,)


@pytest.mark.parametrize(
    ("floats", "quotient", "root"),
    [(LEAST, 3.0, 5.0), (FloatPromises(single=Division(2.5, 3.0)), 3.0, 3.5),
     (FloatPromises(single=Division(CORRECT, CORRECT)), 0.0, 0.0)],
)  # fmt: skip
def test_quotients_and_roots_are_asked_for_as_near_as_a_device_promises(
    floats: FloatPromises, quotient: float, root: float
) -> None:
    questions = list_questions(find_dialect("hlsl"), "gpu", floats)
    by_name = {
        answer.shown.removesuffix(" of FLOAT32"): answer
        for question in questions
        if question.program.name.startswith("f32_by_1_")
        for answer in question.answers.values()
    }
    assert (by_name["div(A, B)"].ulps, by_name["sqrt(A)"].ulps) == (quotient, root)
    assert by_name["A < B ? div(A, B) : A"].ulps == quotient
    assert {by_name[n].ulps for n in ("add(A, B)", "mul(A, B)", "max(A, B)")} == {0.0}
    # -0.875 / 1.5 is off by one unit of the last place on an H200.
    answer = by_name["div(A, B)"]
    for steps, passes in ((0, True), (1, quotient > 0), (4, False)):
        off = answer.values.copy()
        for _ in range(steps):
            off = np.where(np.isfinite(off) & (off != 0), np.nextafter(off, np.float32(0)), off)
        assert (find_wrong(off, answer).size == 0) is passes, steps


def test_no_two_vectors_are_alike() -> None:
    question: Question = next(list_questions(find_dialect("opencl"), "cpu"))
    for array in question.inputs.values():
        rows = {row.tobytes() for row in array.reshape(-1, 16)}
        assert len(rows) == array.size // 16


class Miscompiler:
    """Loads programs that give another sign to one value in FLOAT32, as a driver might."""

    def __call__(self, program: Program, device: AnyDevice) -> Any:
        loaded = devices.load_on(program, device)

        def run(inputs: dict[str, Array]) -> dict[str, Array]:
            found = loaded(inputs)
            if program.name == "f32_by_4_1":
                found["R"][5] *= -1
            return found

        return run


@pytest.fixture
def few_questions(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [q for q in make_all_questions(find("opencl")) if q.program.name == "f32_by_4_1"]

    def make_few(_: AnyDevice) -> list[Question]:
        return few

    monkeypatch.setattr(known_answers, "make_all_questions", make_few)
    monkeypatch.setattr(known_answers, "_verdicts", Verdicts(tmp_path))


@pytest.mark.usefixtures("few_questions")
def test_a_driver_that_miscompiles_is_told_from_a_wrong_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = str(find("opencl"))
    assert explain_failure("opencl") == (
        f"opencl:0, {name}, gives every known answer: the kernel is at fault, or what is expected "
        "of it"
    )
    assert explain_failure("reference") == ""
    monkeypatch.setattr(known_answers, "load_on", Miscompiler())
    # What was found out is kept.
    assert "gives every known answer" in explain_failure("opencl")
    monkeypatch.setattr(known_answers, "_find_revision", lambda: "another")
    said = explain_failure("opencl")
    assert said.startswith(f"opencl:0, {name}, gets 1 of the known answers wrong, and may be at ")
    assert "add(A, B) of FLOAT32 in 4 lanes is " in said
    assert "1 of 64 are wrong" in said


def test_answers_are_those_of_numpy() -> None:
    """The interpreter gives the answers: here it is held to the definitions of operations."""
    questions = list_questions(find_dialect("opencl"), "cpu")
    checked = 0
    for question in questions:
        a, b = question.inputs["A"], question.inputs["B"]
        for answer in question.answers.values():
            name, _, rest = answer.shown.partition("(")
            operation = OPERATIONS.get(name)
            if operation is None or not rest.startswith(("A, B) of", "A) of")):
                continue
            with np.errstate(all="ignore"):
                expected = operation.evaluate(*(a, b, a)[: operation.arity])
            if not operation.gives_bool or a.dtype == bool:
                assert np.array_equal(
                    answer.values, expected, equal_nan=answer.values.dtype.kind == "f"
                ), answer.shown
                checked += 1
    assert checked > 500
