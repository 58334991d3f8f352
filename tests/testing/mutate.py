"""Mutations of a kernel, each at one place, as errors in a schedule or a formula cause them. Cases
that a mutant passes are too weak."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TypeAlias

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_kernel
from dmlc.kernel.rewrite import (
    find_body,
    list_expressions,
    map_expressions,
    map_operands,
    replace_body,
    walk,
)
from dmlc.kernel.target import Limits, Profile
from dmlc.lowering.group import lower_group
from dmlc.pipeline import Steps
from dmlc.scalars import OPERATIONS, DataType
from dmlc.transform.fuse import Group

Statements: TypeAlias = tuple[k.Statement, ...]
OfStatement: TypeAlias = Callable[[k.Statement], Statements | None]
"""Replacement of a statement; None if not applicable."""
OfExpression: TypeAlias = Callable[[k.Expression], k.Expression | None]
OfKernel: TypeAlias = Callable[[k.Kernel], k.Kernel | None]


# Kernels, of which one statement or expression is changed -----------------------------------


def change_statements(kernel: k.Kernel, change: OfStatement) -> Iterator[k.Kernel]:
    """Kernels with one statement changed, for each statement that the change applies to."""
    for body in _change_each(kernel.body, change):
        yield dataclasses.replace(kernel, body=body)


def _change_each(statements: Statements, change: OfStatement) -> Iterator[Statements]:
    for at, statement in enumerate(statements):
        before, after = statements[:at], statements[at + 1 :]
        changed = change(statement)
        if changed is not None:
            yield before + changed + after
        for body in _change_each(find_body(statement), change):
            yield (*before, replace_body(statement, body), *after)


def change_expressions(kernel: k.Kernel, change: OfExpression) -> Iterator[k.Kernel]:
    """Kernels with one expression changed, for each that the change applies to."""

    def inside(statement: k.Statement) -> Iterator[k.Statement]:
        for root in list_expressions(statement):
            for part in walk(root):
                changed = change(part)
                if changed is not None:
                    yield map_expressions(statement, _replace(part, changed))

    def each(statements: Statements) -> Iterator[Statements]:
        for at, statement in enumerate(statements):
            before, after = statements[:at], statements[at + 1 :]
            for changed in inside(statement):
                yield (*before, changed, *after)
            for body in each(find_body(statement)):
                yield (*before, replace_body(statement, body), *after)

    for body in each(kernel.body):
        yield dataclasses.replace(kernel, body=body)


def _replace(part: k.Expression, changed: k.Expression) -> Callable[[k.Expression], k.Expression]:
    def change(expression: k.Expression) -> k.Expression:
        return changed if expression is part else map_operands(expression, change)

    return change


# Pieces -------------------------------------------------------------------------------------


def step(index: k.Expression, by: int) -> k.Expression:
    """Index moved by `by` elements."""
    return k.Operate(OPERATIONS["add"], (index, k.Literal(k.INDEX, by)), k.INDEX)


def exchange(before: str, after: str) -> OfExpression:
    """Replaces one operation by another."""

    def change(expression: k.Expression) -> k.Expression | None:
        if isinstance(expression, k.Operate) and expression.operation.name == before:
            return dataclasses.replace(expression, operation=OPERATIONS[after])
        return None

    return change


def turn(name: str) -> OfExpression:
    """Swaps the operands of an operation."""

    def change(expression: k.Expression) -> k.Expression | None:
        if isinstance(expression, k.Operate) and expression.operation.name == name:
            return dataclasses.replace(expression, operands=expression.operands[::-1])
        return None

    return change


def move(kind: type[k.Load] | type[k.LoadLocal]) -> OfExpression:
    """Reads the next element."""

    def change(expression: k.Expression) -> k.Expression | None:
        if isinstance(expression, kind):
            return dataclasses.replace(expression, index=step(expression.index, 1))
        return None

    return change


def move_write(kind: type[k.Store] | type[k.StoreLocal]) -> OfStatement:
    def change(statement: k.Statement) -> Statements | None:
        if isinstance(statement, kind):
            return (dataclasses.replace(statement, index=step(statement.index, 1)),)
        return None

    return change


def drop(kind: type[k.Statement]) -> OfStatement:
    return lambda statement: () if isinstance(statement, kind) else None


def twice(kind: type[k.Statement]) -> OfStatement:
    return lambda statement: (statement, statement) if isinstance(statement, kind) else None


def of_loop(change: Callable[[k.For], k.For]) -> OfStatement:
    return lambda statement: (change(statement),) if isinstance(statement, k.For) else None


def _less(stop: k.Expression) -> k.Expression:
    return k.Operate(OPERATIONS["sub"], (stop, k.Literal(k.INDEX, 1)), k.INDEX)


def _without_guard(statement: k.Statement) -> Statements | None:
    return statement.then if isinstance(statement, k.If) else None


def _negate_guard(statement: k.Statement) -> Statements | None:
    if not isinstance(statement, k.If):
        return None
    negated = k.Operate(OPERATIONS["not"], (statement.condition,), k.BOOL)
    return (k.If(negated, statement.then),)


def _guard_barrier(statement: k.Statement) -> Statements | None:
    """Makes a barrier conditional for some work items of the group."""
    if not isinstance(statement, k.Barrier):
        return None
    lane, one = k.Position(k.Geometry.LANE), k.Literal(k.INDEX, 1)
    return (k.If(k.Operate(OPERATIONS["lt"], (lane, one), k.BOOL), (statement,)),)


def _stale(statement: k.Statement) -> Statements | None:
    """Initialises an accumulator with another value than its identity."""
    if isinstance(statement, k.Variable) and statement.local.type == k.Type(DataType.FLOAT32):
        return (k.Variable(statement.local, k.Literal(statement.local.type, 3.0)),)
    return None


def _forget(statement: k.Statement) -> Statements | None:
    """Overwrites an accumulator instead of adding to it."""
    if isinstance(statement, k.Assign) and isinstance(statement.value, k.Operate):
        return (k.Assign(statement.local, statement.value.operands[-1]),)
    return None


def _fewer_lanes(statement: k.Statement) -> Statements | None:
    """Halves the step of a vector loop."""
    if isinstance(statement, k.For) and statement.step == 16:
        return (dataclasses.replace(statement, step=8),)
    return None


def _next_literal(expression: k.Expression) -> k.Expression | None:
    if isinstance(expression, k.Literal) and expression.type == k.INDEX:
        return k.Literal(k.INDEX, int(expression.value) + 1)
    return None


def _swap_arms(expression: k.Expression) -> k.Expression | None:
    if isinstance(expression, k.Select):
        return dataclasses.replace(expression, then=expression.otherwise, otherwise=expression.then)
    return None


def _other_place(expression: k.Expression) -> k.Expression | None:
    if isinstance(expression, k.Position):
        other = k.Geometry.GROUP if expression.geometry is k.Geometry.LANE else k.Geometry.LANE
        return k.Position(other)
    return None


def _plain(expression: k.Expression) -> k.Expression | None:
    return expression.operand if isinstance(expression, k.Convert) else None


def _narrow(expression: k.Expression) -> k.Expression | None:
    """Reads one lane instead of several."""
    if isinstance(expression, k.Load) and expression.type.lanes > 1:
        return k.Load(expression.buffer, expression.index, k.Type(expression.type.dtype))
    return None


def _off(expression: k.Expression) -> k.Expression | None:
    """Changes a float constant c to 1.5 c + 1."""
    if not isinstance(expression, k.Literal) or not expression.type.dtype.is_float:
        return None
    value = float(expression.value)
    return k.Literal(expression.type, value * 1.5 + 1.0) if math.isfinite(value) else None


def first_of(name: str) -> OfExpression:
    """Replaces an operation on floats by its first operand."""

    def change(expression: k.Expression) -> k.Expression | None:
        if isinstance(expression, k.Operate) and expression.operation.name == name:
            return expression.operands[0] if expression.type.dtype.is_float else None
        return None

    return change


def _turn_lanes(expression: k.Expression) -> k.Expression | None:
    if isinstance(expression, k.Shuffle):
        return dataclasses.replace(expression, lanes=expression.lanes[1:] + expression.lanes[:1])
    return None


def _beyond_lanes(expression: k.Expression) -> k.Expression | None:
    if isinstance(expression, k.Shuffle):
        last = 2 * expression.first.type.lanes
        return dataclasses.replace(expression, lanes=(*expression.lanes[:-1], last))
    return None


def _launch(**changes: Callable[[k.Launch], int]) -> OfKernel:
    def change(kernel: k.Kernel) -> k.Kernel | None:
        made = {name: find(kernel.launch) for name, find in changes.items()}
        return dataclasses.replace(kernel, launch=dataclasses.replace(kernel.launch, **made))

    return change


def _count(launch: k.Launch) -> int:
    return launch.count if isinstance(launch.count, int) else 0


def _arrays(change: Callable[[k.Array], k.Array]) -> OfKernel:
    def changed(kernel: k.Kernel) -> k.Kernel | None:
        if not kernel.arrays:
            return None
        first, *rest = kernel.arrays
        return dataclasses.replace(kernel, arrays=(change(first), *rest))

    return changed


def _accesses(before: k.Access, after: k.Access) -> OfKernel:
    def change(kernel: k.Kernel) -> k.Kernel | None:
        made = [
            dataclasses.replace(b, access=after) if b.access is before else b
            for b in kernel.buffers
        ]
        return dataclasses.replace(kernel, buffers=tuple(made))

    return change


# The table ----------------------------------------------------------------------------------

OF_STATEMENTS: dict[str, OfStatement] = {
    "a guard is missing": _without_guard,
    "a guard is negated": _negate_guard,
    "a barrier is missing": drop(k.Barrier),
    "a barrier stands under a guard": _guard_barrier,
    "an accumulator starts stale": _stale,
    "an accumulator forgets": _forget,
    "an assignment is missing": drop(k.Assign),
    "a variable is missing": drop(k.Variable),
    "a value is missing": drop(k.Let),
    "a value is defined twice": twice(k.Let),
    "a store is missing": drop(k.Store),
    "a store goes one on": move_write(k.Store),
    "a write to an array is missing": drop(k.StoreLocal),
    "a write to an array goes one on": move_write(k.StoreLocal),
    "a loop goes one too far": of_loop(
        lambda loop: dataclasses.replace(loop, stop=step(loop.stop, 1))
    ),
    "a loop ends one early": of_loop(lambda loop: dataclasses.replace(loop, stop=_less(loop.stop))),
    "a loop starts one late": of_loop(
        lambda loop: dataclasses.replace(loop, start=step(loop.start, 1))
    ),
    "a loop's bounds are swapped": of_loop(
        lambda loop: dataclasses.replace(loop, start=loop.stop, stop=loop.start)
    ),
    "a loop takes double steps": of_loop(
        lambda loop: dataclasses.replace(loop, step=2 * loop.step)
    ),
    "a loop takes no steps": of_loop(lambda loop: dataclasses.replace(loop, step=0)),
    "a loop is missing": drop(k.For),
    "a vector loop takes half steps": _fewer_lanes,
    "a half of a word is missing": drop(k.InsertHalf),
    "a word is not stored": drop(k.StoreWord),
}
OF_EXPRESSIONS: dict[str, OfExpression] = {
    "a read goes one on": move(k.Load),
    "a read of an array goes one on": move(k.LoadLocal),
    "a bound counts one more": exchange("lt", "le"),
    "a condition is the other way": exchange("gt", "lt"),
    "a guard is an alternative": exchange("and", "or"),
    "a sum is a difference": exchange("add", "sub"),
    "a stride is added": exchange("mul", "add"),
    "a quotient is a remainder": exchange("div", "mod"),
    "a limit is the other one": exchange("min", "max"),
    "a difference is turned": turn("sub"),
    "a quotient is turned": turn("div"),
    "a number is one more": _next_literal,
    "a choice is the other way": _swap_arms,
    "a group's number is a lane's": _other_place,
    "a conversion is missing": _plain,
    "a vector is read as a scalar": _narrow,
    "lanes are turned": _turn_lanes,
    "a lane is beyond its vectors": _beyond_lanes,
    "a tie is taken in": exchange("gt", "ge"),
    "a tie is left out": exchange("ge", "gt"),
    "a constant is off": _off,
    "a factor is missing": first_of("mul"),
    "a term is missing": first_of("add"),
}


def _widen_barrier(kernel: k.Kernel) -> k.Kernel | None:
    """Moves a barrier after a guard into it."""
    body = kernel.body
    for at, (first, second) in enumerate(itertools.pairwise(body)):
        if isinstance(first, k.If) and isinstance(second, k.Barrier):
            joined = k.If(first.condition, (*first.then, second))
            return dataclasses.replace(kernel, body=(*body[:at], joined, *body[at + 2 :]))
    return None


OF_KERNELS: dict[str, OfKernel] = {
    "a barrier is drawn into a guard": _widen_barrier,
    "half the items of a group": _launch(group_size=lambda launch: launch.group_size // 2),
    "double the items of a group": _launch(group_size=lambda launch: launch.group_size * 2),
    "a group too few": _launch(count=lambda launch: _count(launch) - launch.per_group),
    "a group takes double": _launch(per_group=lambda launch: launch.per_group * 2),
    "a group takes half": _launch(per_group=lambda launch: launch.per_group // 2),
    "an array is one short": _arrays(lambda a: dataclasses.replace(a, size=a.size - 1)),
    "an array is empty": _arrays(lambda a: dataclasses.replace(a, size=0)),
    "an array is not shared": _arrays(lambda a: dataclasses.replace(a, shared=False)),
    "results are read only": _accesses(k.Access.WRITE, k.Access.READ),
    "operands are write only": _accesses(k.Access.READ, k.Access.WRITE),
}


KINDS: tuple[str, ...] = (*OF_STATEMENTS, *OF_EXPRESSIONS, *OF_KERNELS)


def list_mutants(kernel: k.Kernel, kind: str) -> list[k.Kernel]:
    """Mutants of a kernel by one kind of mutation, one for each place where it applies."""
    if kind in OF_STATEMENTS:
        return list(change_statements(kernel, OF_STATEMENTS[kind]))
    if kind in OF_EXPRESSIONS:
        return list(change_expressions(kernel, OF_EXPRESSIONS[kind]))
    made = OF_KERNELS[kind](kernel)
    return [] if made is None or made == kernel else [made]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """Mutant: a kernel of a program, changed at one place."""

    kind: str
    number: int
    """Index of the kernel in execution order."""
    place: int
    """Index among the places where the mutation applies."""
    whole: k.Kernel
    broken: k.Kernel

    def replace_in(self, kernels: Sequence[k.Kernel]) -> tuple[k.Kernel, ...]:
        """Kernels of the program, with the mutant in place of the original."""
        return tuple(self.broken if kernel == self.whole else kernel for kernel in kernels)

    @property
    def steps(self) -> Steps:
        """Compiler's steps with the mutant in place of one kernel."""
        return Steps(lower=self._lower)

    def _lower(
        self, function: ir.Function, group: Group, profile: Profile, limits: Limits
    ) -> tuple[k.Kernel, ...]:
        return self.replace_in(lower_group(function, group, profile, limits))

    def __str__(self) -> str:
        """Lines in which the mutant differs."""
        before, after = (print_kernel(made).splitlines() for made in (self.whole, self.broken))
        shown = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
        return "\n".join([f"{self.kind}, kernel {self.number}:", *shown])


def draw_mutants(
    kernels: Sequence[k.Kernel], random: Random, most: int | None = None
) -> Iterator[Mutant]:
    """Mutants of a program's kernels by every mutation, at no more than `most` places each."""
    for number, kernel in enumerate(kernels):
        for kind in KINDS:
            made = list(enumerate(list_mutants(kernel, kind)))
            if most is not None and len(made) > most:
                made = sorted(random.sample(made, most), key=lambda each: each[0])
            for place, broken in made:
                if broken != kernel:
                    yield Mutant(kind, number, place, kernel, broken)
