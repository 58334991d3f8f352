"""What stands in an expression stays together: every operation of every dialect, and all else that
takes a value, means the same by an operand of several parts as by a name for it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias, get_args

import pytest

from dmlc.codegen.dialect import COMPUTE_TYPES, Dialect
from dmlc.codegen.hlsl import HLSL_6_0, HLSL_6_2
from dmlc.codegen.names import Mangler
from dmlc.codegen.opencl import OPENCL
from dmlc.codegen.spell import Speller
from dmlc.codegen.wgsl import WGSL
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import operate, widen
from dmlc.kernel.rewrite import map_expressions, map_operands
from dmlc.scalars import OPERATIONS, DataType
from dmlc.scalars.operation import Spelling
from tests.expression_tree import Tree, read_tree

DIALECTS = {"hlsl 6.0": HLSL_6_0, "hlsl 6.2": HLSL_6_2, "opencl": OPENCL, "wgsl": WGSL}
T = DataType
TYPES = (*COMPUTE_TYPES, T.INDEX)
Made: TypeAlias = k.Expression | k.Statement


def name(letter: str, dtype: DataType, lanes: int = 1) -> k.Local:
    return k.Local(f"{letter}_{dtype.short}_{lanes}", k.Type(dtype, lanes))


def list_forms(dtype: DataType, lanes: int) -> Iterator[k.Expression]:
    """Operands of several parts: a choice, a comparison, a sum, and so on."""
    kind = k.Type(dtype, lanes)
    a, b = name("a", dtype, lanes), name("b", dtype, lanes)
    condition, other = name("c", T.BOOL, lanes), name("d", T.BOOL, lanes)
    yield k.Select(condition, a, b, kind)
    if dtype is T.BOOL:
        x, y = name("x", T.FLOAT32, lanes), name("y", T.FLOAT32, lanes)
        yield operate("lt", x, y)
        yield operate("ne", x, y)
        yield operate("isnan", x)
        yield operate("and", condition, other)
        yield operate("or", condition, other)
        yield operate("not", condition)
        return
    yield operate("add", a, b)
    yield operate("sub", a, b)
    yield operate("mul", a, b)
    yield operate("neg", a)
    if dtype.is_integer or dtype is T.INDEX:
        yield operate("bit_and", a, b)
        yield operate("shift_right", a, b)
    if dtype is not T.INDEX:
        yield k.Convert(condition, kind)


def can_spell(dialect: Dialect, form: k.Expression) -> bool:
    """Whether the dialect has what computes an operand."""
    match form:
        case k.Operate(operation=operation, operands=(first, *_)):
            dtype = first.type.dtype
            entry = dialect.operations[operation.name, dtype]
            return isinstance(entry, Spelling) or dtype is T.INDEX
        case k.Convert(operand=operand):
            entry = dialect.conversions[operand.type.dtype, form.type.dtype]
            return isinstance(entry, Spelling)
        case _:
            return form.type.dtype in dialect.types or form.type.dtype is T.INDEX


@functools.cache
def make_speller(dialect: Dialect) -> Speller:
    buffers = tuple(k.Buffer(t.short, t, k.Access.READ_WRITE) for t in dialect.storage)
    arrays = (k.Array("array", T.FLOAT32, 64, False),)
    kernel = k.Kernel("t", buffers, (), k.Launch(1, 1, 1), (), arrays=arrays)
    return Speller(dialect, kernel, Mangler(lambda _: False))


@functools.cache
def spell(dialect: Dialect, made: Made) -> Tree:
    """The tree of an expression; those of a statement's expressions."""
    speller = make_speller(dialect)
    match made:
        case k.For() | k.If():
            head = speller.spell_statements((made,))[0].strip(" {")
            head = head.removeprefix("for (").removeprefix("if (").removesuffix(")")
            head = re.sub(r"^(var )?(\w+ )?i(: \w+)? = |[-+]{2}", "", head)
            return tuple(read_tree(part) for part in head.split(";") if part.strip())
        case k.Store() | k.StoreLocal():
            text = " ".join(speller.spell_statements((made,)))
            return tuple(read_tree(part) for part in text.split(";") if part.strip())
        case k.Operate() | k.Select() | k.Convert() | k.Local() | k.Load() | k.LoadLocal():
            return read_tree(speller.spell(made).text)
        case k.Extract() | k.Reinterpret():
            return read_tree(speller.spell(made).text)
        case _:
            raise AssertionError(made)


def put(tree: Tree, parts: Mapping[str, Tree]) -> Tree:
    """The tree with a tree for each of some names."""
    if isinstance(tree, str):
        return parts.get(tree, tree)
    return tuple(put(part, parts) for part in tree)


POINTERS = ("array", *(t.short for t in DataType))


def strip(tree: Tree) -> Tree:
    """The tree without what only keeps a value as it is, or gives a mask or a choice its type. What
    is added to a pointer may be added term by term."""
    match tree:
        case ("+", str(start), ("+" | "-" as operator, first, second)) if start in POINTERS:
            return strip((operator, ("+", start, first), second))
        case ("call", str(called), operand) if called.startswith(("pin", "convert_")):
            return strip(operand)
        case ("cast", _, ("?", *_) as choice):
            return strip(choice)
        case str():
            return tree
        case _:
            return tuple(map(strip, tree))


def stand(dtype: DataType, lanes: int = 1) -> k.Local:
    """A name for an operand."""
    return k.Local("stands", k.Type(dtype, lanes))


def place(around: Made, form: k.Expression) -> Made:
    """An expression or a statement with the operand itself for its name."""

    def change(part: k.Expression) -> k.Expression:
        stands = isinstance(part, k.Local) and part.name == "stands"
        return form if stands else map_operands(part, change)

    if isinstance(around, get_args(k.Statement)):
        return map_expressions(around, change)
    return change(around)


def check(dialect: Dialect, around: Made, dtype: DataType, lanes: int = 1) -> None:
    """An operand of so many parts, in what takes it under the name of `stand`."""
    named = spell(dialect, around)
    for form in list_forms(dtype, lanes):
        if can_spell(dialect, form):
            expected = put(named, {"stands": spell(dialect, form)})
            made = place(around, form)
            assert strip(spell(dialect, made)) == strip(expected), made


def list_lanes(dialect: Dialect, dtype: DataType) -> tuple[int, ...]:
    if dtype is T.INDEX or dialect.limits.vector_lanes == 1:
        return (1,)
    return (1, 4)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_operands_of_operations(dialect: Dialect) -> None:
    for (called, dtype), entry in dialect.operations.items():
        if not isinstance(entry, Spelling) or called not in OPERATIONS:
            continue
        for lanes in list_lanes(dialect, dtype):
            others = [name(letter, dtype, lanes) for letter in "uvw"][: OPERATIONS[called].arity]
            for number in range(len(others)):
                operands = [*others[:number], stand(dtype, lanes), *others[number + 1 :]]
                check(dialect, operate(called, *operands), dtype, lanes)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_operands_of_conversions(dialect: Dialect) -> None:
    for (source, target), entry in dialect.conversions.items():
        if isinstance(entry, Spelling):
            for lanes in list_lanes(dialect, source):
                made = k.Convert(stand(source, lanes), k.Type(target, lanes))
                check(dialect, made, source, lanes)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_what_else_takes_values(dialect: Dialect) -> None:
    for dtype in TYPES:
        if dtype is not T.INDEX and dtype not in dialect.types:
            continue
        for lanes in list_lanes(dialect, dtype):
            kind, operand = k.Type(dtype, lanes), stand(dtype, lanes)
            u, c = name("u", dtype, lanes), name("c", T.BOOL, lanes)
            check(dialect, k.Select(c, operand, u, kind), dtype, lanes)
            check(dialect, k.Select(c, u, operand, kind), dtype, lanes)
            check(dialect, k.Select(stand(T.BOOL, lanes), u, u, kind), T.BOOL, lanes)
            if lanes > 1:
                check(dialect, k.Extract(operand, (2,), k.Type(dtype)), dtype, lanes)
            elif dtype in (T.FLOAT32, T.INT32):
                check(dialect, k.Reinterpret(operand, k.Type(T.UINT32)), dtype)
    check(dialect, k.If(stand(T.BOOL), ()), T.BOOL)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_what_takes_positions(dialect: Dialect) -> None:
    i, n, operand = k.Local("i", k.INDEX), name("n", T.INDEX), stand(T.INDEX)
    check(dialect, k.For(i, operand, n, 1, ()), T.INDEX)
    check(dialect, k.For(i, n, operand, 1, ()), T.INDEX)
    check(dialect, k.For(i, operand, n, 1, (), backwards=True), T.INDEX)
    for dtype, lanes in itertools.product(dialect.storage, (1, 4)):
        if not isinstance(dialect.storage[dtype], str) or lanes > dialect.limits.vector_lanes:
            continue
        if dtype in dialect.halves or (lanes > 1 and dtype in dialect.limits.packed_types):
            continue  # What shares a word is stored by whole words, at places that are divided.
        kind = k.Type(dtype.compute, lanes)
        check(dialect, k.Load(dtype.short, operand, kind), T.INDEX)
        check(dialect, k.Store(dtype.short, operand, k.Local("value", kind)), T.INDEX)
    for lanes in (1, 4)[: 1 if dialect.elements.vector is None else 2]:
        kind = k.Type(T.FLOAT32, lanes)
        check(dialect, k.LoadLocal("array", operand, kind), T.INDEX)
        check(dialect, k.StoreLocal("array", operand, k.Local("value", kind)), T.INDEX)


@pytest.mark.parametrize("dialect", [HLSL_6_2, OPENCL], ids=lambda d: d.name)
def test_operands_of_scalars_in_vectors(dialect: Dialect) -> None:
    """A scalar that is repeated stands in infix text as it is."""
    x, repeated = name("x", T.FLOAT32, 4), widen(stand(T.FLOAT32), 4)
    for called in ("add", "mul", "div", "lt"):
        check(dialect, operate(called, x, repeated), T.FLOAT32)
        check(dialect, operate(called, repeated, x), T.FLOAT32)


@pytest.mark.parametrize("name", ["isnan", "add", "lt"])
def test_an_operation_on_repeated_scalars_is_one_on_vectors(name: str) -> None:
    """Infix text of scalars alone would be a scalar, which no mask can be."""
    operands = [k.Broadcast(k.Local(x, k.Type(T.FLOAT32)), k.Type(T.FLOAT32, 4)) for x in "xy"]
    made = operate(name, *operands[: OPERATIONS[name].arity])
    _, first, _ = spell(OPENCL, made)
    assert first == ("cast", "float4", "x")


def test_a_missing_parenthesis_is_found() -> None:
    assert read_tree("c ? x : y != c ? x : y") != read_tree("(c ? x : y) != (c ? x : y)")
    broken = dict(OPENCL.operations)
    broken["isnan", T.FLOAT32] = Spelling("isnan({a})", vector="({a} != {a})")
    dialect = dataclasses.replace(OPENCL, operations=MappingProxyType(broken))
    with pytest.raises(AssertionError):
        check(dialect, operate("isnan", stand(T.FLOAT32, 4)), T.FLOAT32, 4)
