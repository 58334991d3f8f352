"""Kernel on a simulated device, where everything that its language leaves undefined is decided by a
seed. The interpreter of kernels does the rest.

The spelling of an operation determines its freedoms, so this module asks the dialect, as the
generation of text does, and searches the text of HLSL's helper functions for divisions.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dmlc.codegen.dialect import Dialect
from dmlc.codegen.quotients import QUOTIENTS, UNSIGNED, Quotients
from dmlc.codegen.spell import prepare_function
from dmlc.codegen.trace import Definition
from dmlc.freedoms import (
    Freedom,
    Numbers,
    Taken,
    draw_bits,
    draw_key,
    flush,
    mix,
    mix_all,
    step_away,
    width_of,
)
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import Launch, evaluate_kernel, run_kernel
from dmlc.kernel.memory import Cells, Items, Mask, Memory, Who
from dmlc.kernel.precise import passes_on
from dmlc.program import KernelSource
from dmlc.scalars import Array, DataType, Kind, convert
from dmlc.scalars.operation import Spelling

_BITWISE = ("isnan", "mod", "round_float16", "round_bfloat16")
"""Functions that HLSL computes on the bits of a FLOAT32, without any freedom."""
_CHOSEN = ("lt", "le", "gt", "ge")
_EXTREMES = ("min", "max")
_FLOATING = re.compile(r"\$([A-Z])\s+\w+\s*=[^;]*\s[/%]\s")
"""Division in a helper function, with the type of its result."""
_BATCHES = 3
_HUGE = 4096
"""Largest launch that runs in several batches of groups."""


@dataclasses.dataclass(frozen=True, slots=True)
class Simulated:
    """Kernel beside its text in a dialect."""

    kernel: k.Kernel
    dialect: Dialect

    def run(
        self,
        source: KernelSource,
        memories: Sequence[Array],
        sizes: Mapping[str, int],
        taken: Taken,
    ) -> None:
        """Runs one launch on the elements of each buffer; `sizes` has the symbols. Scalars and
        groups are those of the `source`."""
        kernel = self.kernel
        values = (scalar.value for scalar in source.scalars)
        scalars = tuple((s, value) for (s, _), value in zip(kernel.scalars, values, strict=True))
        launch = dataclasses.replace(kernel.launch, count=source.dispatch.count)
        made = dataclasses.replace(kernel, scalars=scalars, launch=launch)
        named = {
            buffer.name: Memory(values, filled=True)
            for buffer, values in zip(kernel.buffers, memories, strict=True)
        }
        run_kernel(
            made, named, sizes, functools.partial(StrictLaunch, taken=taken, dialect=self.dialect)
        )


class StrictCells(Cells):
    """Buffer that may be read out of bounds, with arbitrary results."""

    def _redirect(self, index: Array, lanes: int, who: Who) -> tuple[Items, Mask]:
        """Elements of some items within their rows, and a mask of those out of bounds."""
        first = self._items.among(index, who).astype(np.int64)
        places = first if lanes == 1 else first[:, None] + np.arange(lanes)
        return places, (places < 0) | (places >= self.size)

    def _locate(self, index: Array, lanes: int, who: Who) -> Items:
        places, outside = self._redirect(index, lanes, who)
        if not outside.any():
            return super()._locate(index, lanes, who)
        anywhere = mix(places, self.size) % np.uint64(max(self.size, 1))
        places = np.where(outside, anywhere.astype(np.int64), places)
        if self.rows is None:
            return places
        begin = self._items.among(self.rows, who)
        return places + (begin if lanes == 1 else begin[:, None])

    def read(self, index: Array, lanes: int, who: Who) -> Array:
        if self.size:
            return super().read(index, lanes, who)
        dtype = self._memory.values.dtype if self.compute is None else self.compute.dtype
        return np.zeros((index.shape[0], lanes) if lanes > 1 else index.shape[0], dtype)

    def write(self, index: Array, values: Array, lanes: int, who: Who) -> None:
        _, outside = self._redirect(index, lanes, who)
        if not outside.any():
            super().write(index, values, lanes, who)
            return
        places, _ = self._each(self._locate(index, lanes, who), who)
        made, lost = self._items.among(values, who), ~outside.ravel()
        shape = (self._items.find(who).size, lanes) if lanes > 1 else (self._items.find(who).size,)
        made = np.broadcast_to(made, shape).ravel()
        kept = np.broadcast_to(lost, places.shape) if lost.size == 1 else lost
        stored = made if self.stored is None else convert(made, self.stored)
        self._memory.values[places[kept]] = stored[kept]


class StrictLaunch(Launch):
    """Launch that takes the freedoms of a device."""

    def __init__(
        self,
        kernel: k.Kernel,
        memories: Mapping[str, Memory],
        sizes: Mapping[str, int],
        known: Mapping[str, Array] = MappingProxyType({}),
        *,
        taken: Taken,
        dialect: Dialect,
    ) -> None:
        self._taken = taken
        self._dialect = dialect
        self._instructions = 0
        self._keeps = False
        """Whether the current value belongs to a precise local, and so is computed as written."""
        self._precise = {a.name for a in kernel.arrays if a.registers}
        """Arrays whose elements are like precise locals."""
        super().__init__(kernel, memories, sizes, known)
        self._quotients = Quotients(dialect, kernel, self._reaches)

    def _has(self, freedom: Freedom) -> bool:
        return freedom in self._taken.freedoms

    def _next_key(self) -> int:
        """Number of the current instruction."""
        self._instructions += 1
        return draw_key(self._taken.seed, self._kernel.name, self._instructions)

    # Memory and order ---------------------------------------------------------------------

    def _make_cells(self, held: k.Buffer | k.Array, memory: Memory, of: type[Cells]) -> Cells:
        return super()._make_cells(held, memory, StrictCells if self._has(Freedom.MEMORY) else of)

    def _make_array(self, array: k.Array) -> Cells:
        cells = super()._make_array(array)
        if self._has(Freedom.MEMORY):
            key = draw_key(self._taken.seed, self._kernel.name, array.name)
            cells.fill(lambda count, dtype: draw_bits(count, dtype, key))
        return cells

    def _run_items(self, body: Callable[[Who], None]) -> None:
        groups, size = self._items.groups, self._items.group_size
        # A function has no buffers, and returns its result for all values.
        may_part = bool(self._kernel.buffers) and 1 < groups <= _HUGE
        if not self._has(Freedom.ORDER) or not may_part:
            body(None)
            return
        key = draw_key(self._taken.seed, self._kernel.name, "order")
        batches = mix(np.arange(groups), key) % np.uint64(_BATCHES)
        for number in range(_BATCHES):
            chosen = (batches == number).repeat(size)
            if chosen.any():
                body(None if chosen.all() else chosen)

    # What is kept as it is written --------------------------------------------------------

    def _make_as(self, value: k.Expression, type: k.Type) -> Callable[[Who], Array]:
        # Every local of floats is `precise`, and so are arrays of registers.
        self._keeps = type.dtype.is_float
        made = super()._make_as(value, type)
        self._keeps = False
        return made

    def _make_write(
        self, name: str, index: k.Expression, value: k.Expression
    ) -> Callable[[Who], None]:
        self._keeps = value.type.dtype.is_float and name in self._precise
        made = super()._make_write(name, index, value)
        self._keeps = False
        return made

    def _make(self, node: k.Expression) -> Callable[[Who], Array]:
        keeps = self._keeps
        self._keeps = keeps and passes_on(node, self._dialect.limits.precise or ())
        made = super()._make(node)
        self._keeps = keeps
        return made

    def _make_operation(self, node: k.Operate) -> Callable[[Who], Array]:
        product = _find_product(node)
        is_kept = self._keeps or not self._has(Freedom.CONTRACTION)
        made = super()._make_operation(node)
        if product is None or is_kept or not self._next_key() & 1:
            return made
        first, second = (self._make(operand) for operand in product.operands)
        other = self._make(node.operands[1 if product is node.operands[0] else 0])
        is_second = product is node.operands[1]
        is_difference = node.operation.name == "sub"

        def run(who: Who) -> Array:
            # Twice the width holds the product as it is.
            factors = (v(who).astype(np.float64) for v in (first, second))
            whole, added = np.multiply(*factors), other(who)
            if is_difference:
                whole, added = (-whole, added) if is_second else (whole, -added)
            return (whole + added).astype(np.float32)

        return run

    # Operations ---------------------------------------------------------------------------

    def _find_evaluation(self, node: k.Operate) -> Callable[..., Array]:
        operation, dtype = node.operation, node.operands[0].type.dtype
        evaluate = super()._find_evaluation(node)
        free = self._has(Freedom.CONTRACTION)
        if operation.name == "fma" and free and self._next_key() & 1:
            evaluate = _multiply_then_add
        defined = operation if isinstance(operation, Definition) else self._find_function(node)
        if defined is not None:
            make = functools.partial(StrictLaunch, taken=self._taken, dialect=self._dialect)
            kernel = prepare_function(self._dialect, defined)
            return lambda *given: evaluate_kernel(kernel, given, make)
        if dtype.is_float:
            return self._free_float(node, evaluate)
        if operation.name in QUOTIENTS and self._has(Freedom.REMAINDERS):
            return self._free_quotient(node, evaluate)
        return evaluate

    def _find_function(self, node: k.Operate) -> Definition | None:
        """Definition that computes an operation, if HLSL's own is not used."""
        dtype = node.operands[0].type.dtype
        entry = self._dialect.operations.get((node.operation.name, dtype))
        helper = entry.helper if isinstance(entry, Spelling) else None
        return helper if isinstance(helper, Definition) else None

    def _free_quotient(
        self, node: k.Operate, evaluate: Callable[..., Array]
    ) -> Callable[..., Array]:
        """Quotient or remainder of integers, as HLSL divides."""
        counted, key = self._quotients.find_counted(node), self._next_key()
        if counted is not None:
            return functools.partial(_divide_counted, node.operation.name, counted)
        entry, dtype = self._quotients.find_operation(node)
        if not isinstance(entry, Spelling) or not self._divides_as(entry, dtype):
            return evaluate
        is_signed = dtype.kind is Kind.SIGNED

        def run(a: Array, b: Array) -> Array:
            found = evaluate(a, b)
            is_open = b == 0
            if is_signed:
                is_open = is_open | (a < 0) | (b < 0)
            if not np.any(is_open):
                return found
            anything = mix_all((a, b), key)
            kind = np.dtype(f"u{found.dtype.itemsize}")
            return np.where(is_open, anything.astype(kind).view(found.dtype), found)

        return run

    def _divides_as(self, entry: Spelling, dtype: DataType) -> bool:
        """Whether an operation is HLSL's own quotient of that type, with its freedoms: directly, or
        in a helper function."""
        if not isinstance(entry.helper, str):
            return entry.helper is None
        text = self._dialect.helpers[entry.helper].text.template
        found = _FLOATING.findall(text)
        return dtype.kind is Kind.SIGNED and "V" not in found

    def _free_float(self, node: k.Operate, evaluate: Callable[..., Array]) -> Callable[..., Array]:
        """Operation on floats, with its instruction's treatment of denormals, NaN and zeros."""
        name, dtype, key = node.operation.name, node.operands[0].type.dtype, self._next_key()
        if name in _BITWISE and dtype is DataType.FLOAT32:
            return evaluate
        loses = self._has(Freedom.DENORMALS)
        flushes_in, flushes_out = loses and bool(key & 1), loses and bool(key & 2)
        most = self._find_steps(name)
        keeps = width_of(dtype) in self._taken.special or not self._has(Freedom.SPECIAL)
        flushes_out = flushes_out and not node.operation.gives_bool

        def run(*given: Array) -> Array:
            taken = tuple(map(flush, given)) if flushes_in else given
            found = np.asarray(evaluate(*taken))
            if most:
                found = step_away(found, mix_all(taken, key), most)
            if flushes_out:
                found = flush(found)
            return found if keeps else _lose(name, found, taken, mix_all(taken, key))

        return run

    def _find_steps(self, name: str) -> int:
        """Units in the last place by which a correctly rounded result may be moved."""
        if not self._has(Freedom.DIVISION):
            return 0
        return {"div": self._taken.quotient, "sqrt": self._taken.root}.get(name, 0)

    def _make_choice(self, node: k.Select) -> Callable[[Who], Array]:
        chosen = super()._make_choice(node)
        condition, sides = node.condition, (node.then, node.otherwise)
        dtype, key = node.type.dtype, self._next_key()
        if not dtype.is_float or not self._has(Freedom.SPECIAL):
            return chosen
        if width_of(dtype) in self._taken.special or not isinstance(condition, k.Operate):
            return chosen
        if condition.operation.name not in _CHOSEN or set(condition.operands) != set(sides):
            return chosen
        then, otherwise = self._make(node.then), self._make(node.otherwise)

        def run(who: Who) -> Array:
            taken = (then(who), otherwise(who))
            return _lose("min", chosen(who), taken, mix_all(taken, key))

        return run

    def _find_conversion(self, node: k.Convert, target: DataType) -> Callable[[Array], Array]:
        source, key = node.operand.type.dtype, self._next_key()
        convert_plainly = super()._find_conversion(node, target)
        if not source.is_float or not target.is_integer or not self._has(Freedom.CONVERSIONS):
            return convert_plainly
        entry = self._dialect.conversions[source, target]
        if not isinstance(entry, Spelling) or entry.helper is not None:
            return convert_plainly
        limits = np.iinfo(target.dtype)

        def run(values: Array) -> Array:
            whole = np.trunc(values.astype(np.float64))
            fits = (whole >= float(limits.min)) & (whole < float(limits.max) + 1)
            anything = mix(values, key).astype(f"u{target.bytes}").view(target.dtype)
            return np.where(fits, convert_plainly(values), anything)

        return run


def _find_product(node: k.Operate) -> k.Operate | None:
    """Product that may be fused with an addition, without rounding in between."""
    if node.operation.name not in ("add", "sub") or node.type.dtype is not DataType.FLOAT32:
        return None
    for operand in node.operands:
        if isinstance(operand, k.Operate) and operand.operation.name == "mul":
            return operand
    return None


def _multiply_then_add(x: Array, y: Array, z: Array) -> Array:
    """Product and sum, both rounded."""
    return np.asarray(x * y + z)


def _divide_counted(name: str, counted: DataType, a: Array, b: Array) -> Array:
    """Quotient or remainder of operands interpreted as unsigned."""
    number, divisor = a.astype(counted.dtype), b.astype(counted.dtype)
    divisor = np.where(divisor == 0, counted.dtype.type(1), divisor)
    found = np.floor_divide(number, divisor) if name == "div" else np.remainder(number, divisor)
    return np.asarray(found).astype(UNSIGNED[a.dtype.itemsize].dtype).view(a.dtype)


def _lose(name: str, found: Array, given: tuple[Array, ...], numbers: Numbers) -> Array:
    """Result of an operation that keeps neither NaN nor the signs of zeros."""
    one = (numbers & np.uint64(1)).astype(np.bool_)
    is_nan = functools.reduce(np.logical_or, map(np.isnan, given))
    if found.dtype.kind == "b":
        return np.where(is_nan, one, found)
    if name in _EXTREMES:
        either = np.where(one, given[0], given[-1])
        found = np.where(is_nan, either, found)
    return np.where(found == 0, np.where(one, found, -found), found)
