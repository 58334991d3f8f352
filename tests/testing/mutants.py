"""Detection of mutants of a program's kernels by cases, and proofs of equivalence.

A mutant is refused by the verifier, makes a faulty access, or gives wrong results. One that is not
detected is either provably equivalent, or a gap in the cases.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from dmlc import ir
from dmlc.binding import ir_name
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import KernelFault, run_kernels
from dmlc.kernel.passes import find_sizes
from dmlc.kernel.rewrite import (
    find_body,
    find_defined,
    list_expressions,
    list_operands,
    map_expressions,
    map_operands,
    replace_body,
    walk,
)
from dmlc.kernel.verify import verify_kernel
from dmlc.pipeline import USUAL, Steps, make_kernels
from dmlc.scalars import Array
from dmlc.source import InternalError
from dmlc.testing.case import Case, judge
from tests.testing.mutate import Mutant

Statements: TypeAlias = tuple[k.Statement, ...]


class Finder(enum.Enum):
    """Means by which a mutant is detected."""

    VERIFIER = "the verifier"
    FAULT = "the interpreter"
    RESULT = "a wrong result"


@dataclasses.dataclass(frozen=True)
class Program:
    """Kernels of a function for the interpreter."""

    function: ir.Function
    """Function as bound."""
    fused: ir.Function
    kernels: tuple[k.Kernel, ...]

    @staticmethod
    def make(
        function: ir.Function, target: str, profile: str | None = None, steps: Steps = USUAL
    ) -> Program:
        return Program(function, *make_kernels(function, target, profile, steps=steps))

    def run(self, case: Case, kernels: Sequence[k.Kernel] | None = None) -> dict[str, Array]:
        """Results of a case with these kernels or others. Raises `KernelFault`."""
        spelt = {ir_name(name): array for name, array in case.inputs.items()}
        given = {p.name: spelt[p.name] for p in self.function.parameters}
        made = self.kernels if kernels is None else kernels
        found = run_kernels(self.fused, made, given, misaligned=1)
        return {name: found[ir_name(name)] for name in case.call.outputs}


class Trial:
    """Program with cases of its function, on which mutants are tried. Cases that the program itself
    fails are dropped."""

    def __init__(self, program: Program, cases: Sequence[Case]) -> None:
        self.program = program
        self.results: list[tuple[Case, dict[str, Array]]] = []
        """Cases with the unchanged program's results."""
        self._passed: tuple[Mutant | None, list[dict[str, Array]]] = (None, [])
        """Latest undetected mutant, with its results."""
        for case in cases:
            found = program.run(case)
            if all(verdict.holds for verdict in judge(case, found).values()):
                self.results.append((case, found))

    def _run(self, case: Case, mutant: Mutant) -> dict[str, Array]:
        return self.program.run(case, mutant.replace_in(self.program.kernels))

    def find_out(self, mutant: Mutant) -> Finder | None:
        """Means by which a mutant is detected, in the first case that shows it."""
        try:
            verify_kernel(mutant.broken, "mutant", find_sizes(self.program.fused, mutant.broken))
        except InternalError:
            return Finder.VERIFIER
        after: list[dict[str, Array]] = []
        for case, _ in self.results:
            try:
                results = self._run(case, mutant)
            except KernelFault:
                return Finder.FAULT
            if not all(verdict.holds for verdict in judge(case, results).values()):
                return Finder.RESULT
            after.append(results)
        self._passed = (mutant, after)
        return None

    # Equivalence ------------------------------------------------------------------------------

    def show_equivalent(self, mutant: Mutant) -> str:
        """Reason that a mutant is equivalent for the sizes of these cases; empty if unproved."""
        path = find_difference(mutant.whole.body, mutant.broken.body)
        if path is not None and _takes_same_turns(mutant, path):
            return "its loop takes the same turns"
        if path is not None and _takes_one_term(mutant, path):
            return "its accumulator takes one term alone"
        if path is not None and not self._is_reached(mutant, path):
            return "no work item comes to where it is broken"
        if path is not None and self._is_unused(mutant, path):
            return "no result depends on the value"
        alone = path is None or (_is_positional(mutant, path) and not _follows_data(mutant.whole))
        same = alone and self._is_same(mutant)
        return "every element is computed and stored as before" if same else ""

    def _is_reached(self, mutant: Mutant, path: Sequence[int]) -> bool:
        """Whether a work item executes the changed statement, tested by a faulting store before
        it."""
        buffer = next(b for b in mutant.whole.buffers if b.access is not k.Access.READ)
        dtype = buffer.dtype.compute
        value = k.Literal(k.Type(dtype), dtype.dtype.type(0).item())
        fault = k.Store(buffer.name, k.Literal(k.INDEX, (1 << 31) - 1), value)
        body = _insert(mutant.whole.body, path, fault)
        trap = dataclasses.replace(mutant, broken=dataclasses.replace(mutant.whole, body=body))
        for case, _ in self.results:
            try:
                self._run(case, trap)
            except KernelFault:
                return True
        return False

    def _is_unused(self, mutant: Mutant, path: Sequence[int]) -> bool:
        """Whether the changed value is unused, tested by NaN in its place."""
        before, after = (_find(kernel.body, path) for kernel in (mutant.whole, mutant.broken))
        if before is None or after is None or type(before) is not type(after):
            return False
        pairs = zip(list_expressions(before), list_expressions(after), strict=False)
        changed = [part for a, b in pairs if a != b for part in _list_changed(a, b)][:1]
        if not changed or not changed[0].type.dtype.is_float:
            return False
        poison = k.Literal(changed[0].type, math.nan)

        def replace(expression: k.Expression) -> k.Expression:
            return poison if expression == changed[0] else map_operands(expression, replace)

        statement = map_expressions(before, replace)
        body = _replace(mutant.whole.body, path, statement)
        trap = dataclasses.replace(mutant, broken=dataclasses.replace(mutant.whole, body=body))
        return self._is_same(trap)

    def _is_same(self, mutant: Mutant) -> bool:
        """Whether results have the same bits. If only indices are changed, and do not depend on
        data, equality on random numbers implies equality on all."""
        passed, known = self._passed
        found = known if passed is mutant else (self._run(case, mutant) for case, _ in self.results)
        return all(
            _is_alike(before[name], after[name])
            for (_, before), after in zip(self.results, found, strict=True)
            for name in before
        )


def _is_alike(one: Array, two: Array) -> bool:
    """Whether two arrays have the same bits, except those of NaN."""
    if not np.array_equal(one, two, equal_nan=one.dtype.kind != "b"):
        return False
    return bool(np.all((np.signbit(one) == np.signbit(two)) | np.isnan(one)))


def find_difference(before: Statements, after: Statements) -> tuple[int, ...] | None:
    """Path to the first statement that differs, as indices into nested bodies; None if all are
    equal."""
    for at, (one, two) in enumerate(zip(before, after, strict=False)):
        if one == two:
            continue
        inner, changed = find_body(one), find_body(two)
        if type(one) is type(two) and inner and list_expressions(one) == list_expressions(two):
            found = find_difference(inner, changed)
            if found is not None and replace_body(two, inner) == one:
                return (at, *found)
        return (at,)
    return None if len(before) == len(after) else (min(len(before), len(after)),)


def _find(body: Statements, path: Sequence[int]) -> k.Statement | None:
    """Statement at a path, or None."""
    for at in path[:-1]:
        body = find_body(body[at])
    return body[path[-1]] if path[-1] < len(body) else None


def _insert(body: Statements, path: Sequence[int], statement: k.Statement) -> Statements:
    at, *rest = path
    if not rest:
        return (*body[:at], statement, *body[at:])
    inner = _insert(find_body(body[at]), rest, statement)
    return (*body[:at], replace_body(body[at], inner), *body[at + 1 :])


def _replace(body: Statements, path: Sequence[int], statement: k.Statement) -> Statements:
    at, *rest = path
    if rest:
        statement = replace_body(body[at], _replace(find_body(body[at]), rest, statement))
    return (*body[:at], statement, *body[at + 1 :])


def _takes_same_turns(mutant: Mutant, path: Sequence[int]) -> bool:
    """Whether a loop with constant bounds has the same iterations."""
    turns: list[range] = []
    for kernel in (mutant.whole, mutant.broken):
        loop = _find(kernel.body, path)
        if not isinstance(loop, k.For) or loop.step < 1:
            return False
        start, stop = _evaluate(loop.start), _evaluate(loop.stop)
        if start is None or stop is None:
            return False
        turns.append(range(start, stop, loop.step))
    loops = [find_body(s) for m in (mutant.whole, mutant.broken) if (s := _find(m.body, path))]
    return turns[0] == turns[1] and loops[0] == loops[1]


def _is_taken_once(statement: k.Statement) -> bool:
    """Whether a statement's body runs at most once."""
    if not isinstance(statement, k.For):
        return True
    start, stop = _evaluate(statement.start), _evaluate(statement.stop)
    return start is not None and stop is not None and start < stop <= start + statement.step


_IDENTITIES = {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}


def _takes_one_term(mutant: Mutant, path: Sequence[int]) -> bool:
    """Whether the accumulator's dropped value is the identity: it starts as that, nothing is
    assigned to it before, and no loop between its declaration and the assignment repeats it."""
    body = mutant.whole.body
    one, two = _find(body, path), _find(mutant.broken.body, path)
    if not isinstance(one, k.Assign) or not isinstance(two, k.Assign):
        return False
    name, value = one.local.name, one.value
    if not isinstance(value, k.Operate) or value.operands != (one.local, two.value):
        return False
    identity, start = _IDENTITIES.get(value.operation.name), None
    for depth, at in enumerate(path):
        for statement in body[:at]:
            if isinstance(statement, k.Variable) and statement.local == one.local:
                start = statement.value
        if any(isinstance(s, k.Assign) and s.local.name == name for s in _list_all(body[:at])):
            return False
        if start is not None and depth < len(path) - 1 and not _is_taken_once(body[at]):
            return False
        body = find_body(body[at])
    while isinstance(start, k.Broadcast):
        start = start.operand
    return isinstance(start, k.Literal) and start.value == identity


def _evaluate(expression: k.Expression) -> int | None:
    """Value of a constant expression."""
    if isinstance(expression, k.Literal):
        return int(expression.value)
    if isinstance(expression, k.Operate):
        values = [_evaluate(operand) for operand in expression.operands]
        known = [np.int64(v) for v in values if v is not None]
        return int(expression.operation.evaluate(*known)) if len(known) == len(values) else None
    return None


def _is_positional(mutant: Mutant, path: Sequence[int]) -> bool:
    """Whether only indices, loops or guards are changed."""
    one, two = (_find(kernel.body, path) for kernel in (mutant.whole, mutant.broken))
    if one is None or two is None or type(one) is not type(two):
        return isinstance(one, k.If | k.For | k.Barrier)
    pairs = zip(list_expressions(one), list_expressions(two), strict=False)
    return all(_is_position(part) for a, b in pairs if a != b for part in _list_changed(a, b))


def _list_changed(one: k.Expression, two: k.Expression) -> Iterator[k.Expression]:
    """Smallest parts of two expressions that differ."""
    first, second = list_operands(one), list_operands(two)
    if type(one) is type(two) and len(first) == len(second):
        changed = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
        if len(changed) == 1:
            yield from _list_changed(*changed[0])
            return
    yield from (one, two)


def _is_position(expression: k.Expression) -> bool:
    """Whether an expression is an index, or a condition on indices alone."""
    kinds = (k.INDEX.dtype, k.BOOL.dtype)
    return all(part.type.dtype in kinds for part in walk(expression))


def _follows_data(kernel: k.Kernel) -> bool:
    """Whether a kernel's indices or branches depend on data."""
    return any(_is_position_of_data(s) for s in _list_all(kernel.body))


def _is_position_of_data(statement: k.Statement) -> bool:
    defined = find_defined(statement)
    made = [list_expressions(statement)[-1]] if defined is not None else []
    decided = [*made] if defined is not None and _is_position(defined) else []
    if isinstance(statement, k.If):
        decided.append(statement.condition)
    if isinstance(statement, k.Assign) and _is_position(statement.local):
        decided.append(statement.value)
    loads = (
        part.index
        for each in list_expressions(statement)
        for part in walk(each)
        if isinstance(part, k.Load | k.LoadLocal)
    )
    return any(not _is_position(each) for each in (*decided, *loads))


def _list_all(statements: Sequence[k.Statement]) -> Iterator[k.Statement]:
    for statement in statements:
        yield statement
        yield from _list_all(find_body(statement))
