"""Questions on every function and every form of statement, in vectors of each width.

The kernels are written in the kernel IR, and its interpreter gives the answers. Each computes many
values of one type, each by a form of its own, from the same operands: a form is an operation, a
choice, a conversion, or a few statements. Forms that an output language lacks are omitted.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from dmlc import ir
from dmlc.codegen.dialect import Dialect
from dmlc.codegen.render import render
from dmlc.kernel.interpret import Memory, run_kernel
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.target import CPU, find_profile
from dmlc.kernel.verify import verify_kernel
from dmlc.loops.nodes import SHORT_VECTOR
from dmlc.runtime.answers import Answer, Question
from dmlc.runtime.floats import CORRECT, LEAST, FloatPromises
from dmlc.scalars import COMBINERS, OPERATIONS, TENSOR_TYPES, Array, DataType
from dmlc.scalars.operation import Unsupported

COUNT = 64
"""Number of elements of each operand: whole vectors of any width."""
_GROUP = 4
"""Number of work items in a group that exchanges values."""
_SHUFFLED = 8
"""Number of lanes of the vectors that kernels shuffle."""
_SHARED = (DataType.FLOAT32, DataType.INT32)
"""Types that are shared in a group; few, because a barrier makes a kernel slow to compile."""
_MOST = 24
"""Number of forms in one kernel, since compile times grow faster than linearly."""
_ULPS = 64.0
"""Permitted error of functions in units in the last place: about as much as languages promise."""

_FLOATS = (0.5, -0.5, 0.75, -3.25, 0.0, 1.0, 4.0, -17.0, np.nan, np.inf, -np.inf, 2.5, -1.5, 9.0,
           0.125, -0.875)  # fmt: skip
_POWERS = (2.0, 3.0, 0.25, -1.0, 0.5, -2.5, 7.0, 2.0, 1.0, 3.0, 2.0, 0.0, -3.0, 9.0, np.nan, 1.5)
_WHOLES = (0, 1, 7, 255, 40000, 65537, 2**24 + 1, 2**31 - 1, 2**33 + 5, 3, 127, 128, 100, 2, 5, 9)
_OTHERS = (5, 7, 1, 0, 3, 2**30 + 1, 65537, 4, 9, 2**31, 12345678, 3, 2, 100, 31, 8)


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """Computation of one value from the operands `a` and `b`, in the kernel IR's text. A `$` makes
    a name unique."""

    shown: str
    value: str
    steps: tuple[str, ...] = ()
    """Statements before it."""
    ulps: float = 0.0
    more: tuple[tuple[str, str], ...] = ()
    """Further values shown and computed after these statements."""
    hint: str = ""
    """Hint of the store."""

    @property
    def results(self) -> tuple[tuple[str, str], ...]:
        return (self.shown, self.value), *self.more


@dataclasses.dataclass(frozen=True, slots=True)
class _TypeWords:
    """Text of types and numbers in a kernel."""

    dtype: DataType
    """Compute type."""
    lanes: int

    def type(self, dtype: DataType | None = None) -> str:
        short = (dtype or self.dtype).short
        return short if self.lanes == 1 else f"{short}x{self.lanes}"

    def number(self, value: int) -> str:
        return self.repeat(f"{value}:{self.dtype.short}")

    def repeat(self, value: str) -> str:
        """Value of the type broadcast to every lane."""
        return value if self.lanes == 1 else f"broadcast({value}, {self.type()})"

    def read(self, place: str) -> str:
        """Load of as many elements as there are lanes."""
        return place if self.lanes == 1 else f"{place}:{self.type()}"


def list_questions(
    dialect: Dialect, profile: str, floats: FloatPromises = LEAST
) -> Iterator[Question]:
    """Questions that a language can express, for a device with these promises."""
    for dtype in TENSOR_TYPES:
        is_held = not isinstance(dialect.storage[dtype], Unsupported)
        if not is_held or dtype in dialect.limits.word_types:
            continue
        for lanes in list_widths(dialect):
            words = _TypeWords(dtype.compute, lanes)
            forms = [
                # Those of a type of 16 bits are those of the type that it is computed in.
                *(() if dtype.is_storage_only else _list_operations(words, dialect, floats)),
                *_list_choices(words),
                *_list_conversions(words, dialect),
                *_list_statements(words, dialect),
            ]
            for number, start in enumerate(range(0, len(forms), _MOST), 1):
                name = f"{dtype.short}_by_{lanes}_{number}"
                some = forms[start : start + _MOST]
                text = _write_kernel(name, dtype, words, some, dialect)
                width = f" in {lanes} lanes" if lanes > 1 else ""
                results = [
                    (f"{shown} of {dtype.name}{width}", form.ulps)
                    for form in some
                    for shown, _ in form.results
                ]
                yield _make_question(name, dtype, text, results, dialect, profile)


def list_word_questions(dialect: Dialect, profile: str) -> Iterator[Question]:
    """Questions on words shared by two elements, if a language stores such."""
    for dtype in (*dialect.limits.word_types, *dialect.limits.pair_types):
        name = f"{dtype.short}_words"
        inserts = (
            f"insert_half w[{half}] = select(lt({a}, {b}), {a}, add({a}, {b})) as R"
            for half, a, b in ((0, "A[i]", "B[i]"), (1, "A[add(i, 1)]", "B[add(i, 1)]"))
        )
        text = "\n".join(
            [
                f"kernel {name} {{",
                f"launch ceil({COUNT} / 2) groups of 1, index u32",
                *(f"buffer {buffer}: {dtype.short} read" for buffer in "AB"),
                f"buffer R: {dtype.short} write",
                "let i: index = mul(group, 2)",
                "var w: u32 = 0:u32",
                *inserts,
                "store_word R[group] = w",
                "}",
            ]
        )
        shown = f"A < B ? A : A + B of {dtype.name}, stored in words"
        yield _make_question(name, dtype, text, [(shown, 0.0)], dialect, profile)


def list_widths(dialect: Dialect) -> tuple[int, ...]:
    """Numbers of lanes of the vectors in a language's kernels."""
    most = dialect.limits.vector_lanes or dialect.limits.whole_lanes
    return (1, SHORT_VECTOR, CPU.lanes) if most == 0 else tuple(dict.fromkeys((1, most)))


# Forms -----------------------------------------------------------------------------------------


def _list_operations(words: _TypeWords, dialect: Dialect, floats: FloatPromises) -> Iterator[_Form]:
    """Every operation by itself, and in a choice."""
    dtype = words.dtype
    for operation in OPERATIONS.values():
        if not operation.operands.accept(dtype):
            continue
        if isinstance(dialect.operations[operation.name, dtype], Unsupported):
            continue
        operands = ("A", "B")[: operation.arity]
        if operation.arity == 3:
            # A product of halves is exact: a device may round once or twice.
            operands = ("round_float16(A)", "round_float16(B)", "A")
        shown = f"{operation.name}({', '.join(operands)})"
        called = shown.lower()
        ulps = _ULPS if operation.transcendental else _find_ulps(operation.name, dtype, floats)
        if dtype is DataType.BOOL:
            yield _Form(shown, called)
        elif operation.gives_bool:
            yield _Form(f"{shown} ? A : B", f"select({called}, a, b)")
        else:
            # Computed once: some take long to compile.
            step = f"let f$: {words.type()} = {called}"
            chosen = (f"A < B ? {shown} : A", "select(lt(a, b), f$, a)")
            yield _Form(shown, "f$", (step,), ulps, (chosen,))


def _find_ulps(operation: str, dtype: DataType, floats: FloatPromises) -> float:
    """Permitted error of an operation's result: 0 if it is correctly rounded, as the answer itself
    is, whose error may be half a unit."""
    promised = floats.find_ulps(operation, dtype)
    return promised + CORRECT if promised > CORRECT else 0.0


def _list_choices(words: _TypeWords) -> Iterator[_Form]:
    if words.dtype is DataType.BOOL:
        yield _Form("A ? B : !A", "select(a, b, not(a))")
        return
    zero, one, mask = map(words.number, (0, 1, 15))
    yield _Form("A < B ? B : A", "select(lt(a, b), b, a)")
    both = f"and(lt(a, b), ne(b, {zero}))"
    yield _Form("A < B && B != 0 || A == 1 ? A : B", f"select(or({both}, eq(a, {one})), a, b)")
    inner = f"select(lt(b, {zero}), a, {one})"
    yield _Form("A < B ? (B < 0 ? A : 1) : B", f"select(lt(a, b), {inner}, b)")
    if words.dtype.is_integer:
        # Logic on three values, chosen by a mask.
        others = words.number(int(np.array(~15).astype(words.dtype.dtype)))
        merged = f"bit_or(bit_and(a, {mask}), bit_and(b, {others}))"
        yield _Form("A < B ? A & 15 | B & ~15 : A", f"select(lt(a, b), {merged}, a)")
        mixed = f"bit_xor(bit_and(a, {mask}), b)"
        yield _Form("A < B ? A & 15 ^ B : B", f"select(lt(a, b), {mixed}, b)")


def _list_conversions(words: _TypeWords, dialect: Dialect) -> Iterator[_Form]:
    """Conversions to each type and back."""
    dtype = words.dtype
    for other in TENSOR_TYPES:
        if other is dtype or other.is_storage_only:
            continue
        ways = (dialect.conversions[pair] for pair in ((dtype, other), (other, dtype)))
        if not any(isinstance(way, Unsupported) for way in ways):
            there = f"cast(a, {words.type(other)})"
            yield _Form(f"A as {other.name} and back", f"cast({there}, {words.type()})")
    if dtype is DataType.FLOAT32:
        there = f"bits(a, {words.type(DataType.UINT32)})"
        yield _Form("A as bits and back", f"bits({there}, {words.type()})")


def _list_statements(words: _TypeWords, dialect: Dialect) -> Iterator[_Form]:
    """Loops, conditions, arrays and lanes."""
    whole, short, lanes = words.type(), words.dtype.short, words.lanes
    if words.dtype is DataType.BOOL and lanes > 1:
        # Nothing keeps those: they are what comparisons give and choices take.
        return
    start = f"var v$: {whole} = a"
    turn = "set v$ = select(lt(v$, b), b, sub(v$, a))"
    counted = [f"let c$: {whole} = {words.repeat(f'cast(k$, {short})')}",
               "set v$ = select(lt(c$, b), v$, sub(v$, c$))"]  # fmt: skip
    if words.dtype is DataType.BOOL:
        turn = "set v$ = ne(v$, b)"
        counted = ["set v$ = ne(v$, a)"]
    for how, head in (
        ("a loop", "0 .. 5"),
        ("a loop by threes", "1 .. 12 step 3"),
        ("a loop written out", "0 .. 4 unroll"),
        ("a loop that stays one", "0 .. 4 rolled"),
        ("a loop from its end", "0 .. 4 backwards"),
        ("a loop of run-time length", "0 .. turns"),
    ):
        yield _Form(how, "v$", (start, f"for k$ in {head} {{", *counted, "}"))
    loops = ("for k$ in 0 .. 3 {", "for l$ in 0 .. k$ {", "if eq(mod(l$, 2), 0) {")
    yield _Form("loops in a loop, with a test", "v$", (start, *loops, turn, "}", "}", "}"))
    first, one = ("a", "b") if lanes == 1 else ("extract(a, [0])", "extract(b, [0])")
    held = first if words.dtype is DataType.BOOL else f"lt({first}, {one})"
    yield _Form("a test of an element", "v$", (start, f"if {held} {{", "set v$ = b", "}"))
    stores = ("store_local kept$[0] = a", f"store_local kept$[{lanes}] = b")
    yield _Form("an array", words.read(f"kept$[mul(mod(lane, 2), {lanes})]"), stores)
    if words.dtype in _SHARED:
        other = f"shared$[mul(sub({_GROUP - 1}, lane), {lanes})]"
        stores = (f"store_local shared$[mul(lane, {lanes})] = a", "barrier")
        yield _Form("what another work item shares", words.read(other), stores)
    if lanes == CPU.lanes and dialect.streaming:
        steps = ("prefetch A[i]", "let lead$: index = lead(R, 64)")
        past = "streaming where eq(lead$, 0)"
        yield _Form("a store past the caches", "b", steps, hint=past)
    if lanes > 1:
        half = lanes // 2
        low, high = ([*range(s, s + half)] for s in (0, half))
        parts = f"extract(a, {low})", f"extract(a, {high})"
        yield _Form("halves joined", f"join({parts[1]}, {parts[0]})")
        if half == _SHUFFLED and not isinstance(dialect.shuffles, Unsupported):
            mixed = (
                f"shuffle({', '.join(parts)}, {[(lane * 11 + 3) % lanes for lane in range(half)]})"
            )
            yield _Form("a shuffle", f"join({mixed}, {parts[0]})")
        for operation in dict.fromkeys(c.operation for c in COMBINERS.values()):
            if operation.operands.accept(words.dtype):
                folded = f"{operation.name}({', '.join(parts)})"
                yield _Form(f"{operation.name} of halves", f"join({folded}, {parts[0]})")
        yield _Form("an element in all lanes", words.repeat("extract(a, [1])"))
        if words.dtype.is_integer:
            numbers = ", ".join(str(number) for number in range(lanes))
            yield _Form("numbers for the lanes", f"add(a, {whole}({numbers}))")


# Kernels ---------------------------------------------------------------------------------------


def _make_question(
    name: str,
    dtype: DataType,
    text: str,
    results: Sequence[tuple[str, float]],
    dialect: Dialect,
    profile: str,
) -> Question:
    """Kernel that stores these results in order; each has a description and a permitted error."""
    size = COUNT * len(results)
    kernel = parse_kernel(text, name)
    verify_kernel(kernel, name, {"A": COUNT, "B": COUNT, "R": size})
    function = _describe(name, dtype, size)
    program = render(function, (kernel,), dialect, find_profile(profile), interpreted=True)
    choices = (_FLOATS, _POWERS) if dtype.is_float else (_WHOLES, _OTHERS)
    inputs = {n: _fill(dtype, values) for n, values in zip("AB", choices, strict=True)}
    found = Memory(np.zeros(size, dtype.dtype), filled=False)
    run_kernel(kernel, {n: Memory(v, filled=True) for n, v in inputs.items()} | {"R": found})
    answers = {
        f"R{number}": Answer(
            shown,
            found.values[number * COUNT : (number + 1) * COUNT],
            ulps,
            ("A", "B"),
            ("R", number * COUNT),
        )
        for number, (shown, ulps) in enumerate(results)
    }
    return Question(program, inputs, answers)


def _fill(dtype: DataType, values: Sequence[float]) -> Array:
    """Values repeated in varying order, so that no two vectors are alike; whole numbers wrap, and
    every other is negative in signed types."""
    whole = not dtype.is_float
    turned = [np.roll(np.array(values, np.int64 if whole else np.float64), 3 * turn * turn)
              for turn in range(COUNT // len(values))]  # fmt: skip
    found = np.concatenate(turned)
    if whole:
        found[1::2] *= -1
    with np.errstate(all="ignore"):
        return found.astype(dtype.dtype)


def _describe(name: str, dtype: DataType, results: int) -> ir.Function:
    """Function of the kernel for its binding: two inputs, and a larger output."""
    size, short = COUNT, dtype.short
    zero = "false" if dtype is DataType.BOOL else f"cast(0, {dtype.compute.short})"
    return ir.parse(
        f"func @{name}(%A: {short}[{size}], %B: {short}[{size}]) -> (%R) {{\n"
        f"  %R: {short}[i0 < {results}] = {zero}\n}}"
    )


def _write_kernel(
    name: str, dtype: DataType, words: _TypeWords, forms: Sequence[_Form], dialect: Dialect
) -> str:
    lanes = words.lanes
    # Where vectors do not lie anywhere, buffers and arrays are made of them.
    limits, vector = dialect.limits, f"x{lanes}" if lanes > 1 else ""
    held = f"{dtype.short}{vector if limits.whole_lanes else ''}"
    local = f"{words.dtype.short}{vector if limits.vector_lanes else ''}"
    arrays: list[str] = []
    body: list[str] = []
    places = itertools.count(step=COUNT)
    for number, form in enumerate(forms):
        steps = [step.replace("$", str(number)) for step in form.steps]
        values = [f"{value} {form.hint}".replace("$", str(number)) for _, value in form.results]
        body += [*steps, *(f"store R[add(i, {next(places)})] = {value}" for value in values)]
        for kind, size in (("kept", 2), ("shared", _GROUP)):
            if any(f"store_local {kind}" in step for step in steps):
                shared = "shared " if kind == "shared" else ""
                arrays.append(f"{shared}array {kind}{number}: {local}[{size * lanes}]")
    return "\n".join(
        [
            f"kernel {name} {{",
            f"launch ceil({COUNT} / {_GROUP * lanes}) groups of {_GROUP}, index u32",
            f"buffer A: {held} read",
            f"buffer B: {held} read",
            f"buffer R: {held} write",
            "scalar turns: index = 3",
            *arrays,
            f"let i: index = mul(add(mul(group, {_GROUP}), lane), {lanes})",
            f"let a: {words.type()} = {words.read('A[i]')}",
            f"let b: {words.type()} = {words.read('B[i]')}",
            *body,
            "}",
        ]
    )
