"""What stands in an expression stays together: every operation of every dialect, and all else that
takes a value, means the same by an operand of several parts as by a name for it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import pytest

from dmlc.codegen.dialect import COMPUTE_TYPES, Dialect, Spelling
from dmlc.codegen.hlsl import HLSL_6_0, HLSL_6_2
from dmlc.codegen.names import Mangler
from dmlc.codegen.opencl import OPENCL
from dmlc.codegen.spell import Speller
from dmlc.codegen.wgsl import WGSL
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import operate, widen
from dmlc.scalars import OPERATIONS, DataType
from tests.expression_tree import Tree, read_tree

DIALECTS = {"hlsl 6.0": HLSL_6_0, "hlsl 6.2": HLSL_6_2, "opencl": OPENCL, "wgsl": WGSL}
T = DataType
TYPES = (*COMPUTE_TYPES, T.INDEX)


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
def spell(dialect: Dialect, made: k.Expression | k.Statement) -> Tree:
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


Outer = Callable[[k.Expression], k.Expression | k.Statement]


def check(dialect: Dialect, outer: Outer, dtype: DataType, lanes: int) -> None:
    around = spell(dialect, outer(k.Local("stands", k.Type(dtype, lanes))))
    for form in list_forms(dtype, lanes):
        if not can_spell(dialect, form):
            continue
        expected = put(around, {"stands": spell(dialect, form)})
        found = spell(dialect, outer(form))
        assert strip(found) == strip(expected), (form, outer(form))


def list_lanes(dialect: Dialect, dtype: DataType) -> tuple[int, ...]:
    if dtype is T.INDEX or dialect.limits.vector_lanes == 1:
        return (1,)
    return (1, 4)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_operands_of_operations(dialect: Dialect) -> None:
    for (called, dtype), entry in dialect.operations.items():
        if not isinstance(entry, Spelling):
            continue
        for lanes in list_lanes(dialect, dtype):
            kind = k.Type(OPERATIONS[called].result_type(dtype), lanes)
            others = [name(letter, dtype, lanes) for letter in "uv"][: OPERATIONS[called].arity]
            for place in range(len(others)):

                def outer(operand: k.Expression) -> k.Expression:
                    operands = [*others[:place], operand, *others[place + 1 :]]
                    return k.Operate(OPERATIONS[called], tuple(operands), kind)

                check(dialect, outer, dtype, lanes)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_operands_of_conversions(dialect: Dialect) -> None:
    for (source, target), entry in dialect.conversions.items():
        if isinstance(entry, Spelling):
            for lanes in list_lanes(dialect, source):
                kind = k.Type(target, lanes)
                check(dialect, lambda o: k.Convert(o, kind), source, lanes)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_what_else_takes_values(dialect: Dialect) -> None:
    types = [t for t in TYPES if t is T.INDEX or t in dialect.types]
    for dtype in types:
        for lanes in list_lanes(dialect, dtype):
            kind = k.Type(dtype, lanes)
            u, c = name("u", dtype, lanes), name("c", T.BOOL, lanes)
            outers: list[Outer] = [
                lambda o: k.Select(c, o, u, kind),
                lambda o: k.Select(c, u, o, kind),
            ]
            if dtype is T.BOOL:
                outers.append(lambda o: k.Select(o, u, u, kind))
            if lanes > 1:
                outers.append(lambda o: k.Extract(o, (2,), k.Type(dtype)))
            elif dtype in (T.FLOAT32, T.INT32, T.UINT32):
                bits = T.UINT32 if dtype is not T.UINT32 else T.FLOAT32
                outers.append(lambda o: k.Reinterpret(o, k.Type(bits)))
            for outer in outers:
                check(dialect, outer, dtype, lanes)
    check(dialect, lambda o: k.If(o, ()), T.BOOL, 1)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_what_takes_positions(dialect: Dialect) -> None:
    i = k.Local("i", k.INDEX)
    check(dialect, lambda o: k.For(i, o, name("n", T.INDEX), 1, ()), T.INDEX, 1)
    check(dialect, lambda o: k.For(i, name("n", T.INDEX), o, 1, ()), T.INDEX, 1)
    check(dialect, lambda o: k.For(i, o, name("n", T.INDEX), 1, (), backwards=True), T.INDEX, 1)
    for dtype, lanes in itertools.product(dialect.storage, (1, 4)):
        if not isinstance(dialect.storage[dtype], str) or lanes > dialect.limits.vector_lanes:
            continue
        if dtype in dialect.halves or (lanes > 1 and dtype in dialect.limits.packed_types):
            continue  # What shares a word is stored by whole words, at places that are divided.
        kind = k.Type(dtype.compute, lanes)
        value = k.Local("value", kind)
        check(dialect, lambda o: k.Load(dtype.short, o, kind), T.INDEX, 1)
        check(dialect, lambda o: k.Store(dtype.short, o, value), T.INDEX, 1)
    for lanes in (1, 4)[: 1 if dialect.elements.vector is None else 2]:
        kind = k.Type(T.FLOAT32, lanes)
        value = k.Local("value", kind)
        check(dialect, lambda o: k.LoadLocal("array", o, kind), T.INDEX, 1)
        check(dialect, lambda o: k.StoreLocal("array", o, value), T.INDEX, 1)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_operands_of_scalars_in_vectors(dialect: Dialect) -> None:
    """A scalar that is repeated stands in infix text as it is."""
    if dialect.limits.vector_lanes == 1:
        return
    x = name("x", T.FLOAT32, 4)
    for called in ("add", "mul", "div", "lt"):
        for operands in itertools.permutations((x, None)):

            def outer(operand: k.Expression) -> k.Expression:
                return operate(called, *(o or widen(operand, 4) for o in operands))

            check(dialect, outer, T.FLOAT32, 1)


def test_a_missing_parenthesis_is_found() -> None:
    assert read_tree("c ? x : y != c ? x : y") != read_tree("(c ? x : y) != (c ? x : y)")
    broken = dict(OPENCL.operations)
    broken["isnan", T.FLOAT32] = Spelling("isnan({a})", vector="({a} != {a})")
    dialect = dataclasses.replace(OPENCL, operations=MappingProxyType(broken))
    with pytest.raises(AssertionError):
        check(dialect, lambda o: operate("isnan", o), T.FLOAT32, 4)
