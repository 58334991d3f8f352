"""Spells the kernel IR in a dialect: expressions and statements to lines of text.

What is spelled how is the dialect's; how spellings nest, when a scalar meets a vector, and how
wide a mask is, are decided here. What a whole file looks like is the template's.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from dmlc.codegen.dialect import Dialect, Entry, Spelling, Unsupported
from dmlc.codegen.names import Mangler
from dmlc.codegen.trace import Definition
from dmlc.kernel import nodes as k
from dmlc.kernel.infix import needs_parentheses
from dmlc.kernel.precise import name_arithmetic
from dmlc.kernel.rewrite import find_body, list_expressions, walk
from dmlc.kernel.tidy import tidy
from dmlc.scalars import DataType, Kind
from dmlc.source import InternalError

_ARITHMETIC = ("add", "sub", "mul", "div")
_INFIX = re.compile(r"\{0\} (\S+) \{1\}")
_INDENT = "    "

PREFIX = "portable_"
"""Stands before the names of functions that are written out: languages keep `exp` and `log`."""

_WIDTH = 100

_SIGNED = {1: DataType.INT8, 2: DataType.INT16, 4: DataType.INT32, 8: DataType.INT64}
_UNSIGNED = {1: DataType.UINT8, 2: DataType.UINT16, 4: DataType.UINT32, 8: DataType.UINT64}


class Text(NamedTuple):
    """Spelled code. A vector of booleans is a mask of integers `mask` bytes wide."""

    text: str
    compound: bool = False
    mask: int = 0
    pieces: tuple[str, ...] = ()
    """The same text where a long line may be broken."""
    operator: str = ""
    """The operator of infix text that is nothing but two operands and it."""
    promoted: bool = False
    """Whether the language takes it for a wider type than it has, and a call for another one."""

    def beside(self, operator: str, *, is_first: bool) -> str:
        """As an operand of an operator, on its left or on its right."""
        if self.operator and not needs_parentheses(self.operator, operator, is_first=is_first):
            return self.text
        return self.inner

    @property
    def inner(self) -> str:
        """As an operand of infix text."""
        return f"({self.text})" if self.compound else self.text


class Speller:
    """Spells one kernel. Collects the helper functions that it uses, in order of first use."""

    def __init__(
        self, dialect: Dialect, kernel: k.Kernel, mangler: Mangler, *, hexadecimal: bool = False
    ) -> None:
        """Unsigned literals of more than a byte are `hexadecimal` where they are bits."""
        self._dialect = dialect
        self._hexadecimal = hexadecimal
        self._kernel = kernel
        self._names = mangler
        self._buffers = {b.name: b for b in kernel.buffers}
        self._masks: dict[str, int] = {}
        self._stored = _find_stored(kernel.body)
        self._index = (kernel.index_bits, kernel.index_signed)
        self.index_type = dialect.index_types[self._index]
        integers = _SIGNED if kernel.index_signed else _UNSIGNED
        self._index_integer = integers[kernel.index_bits // 8]
        self.helpers: dict[str, str] = {}
        """The text of each helper, by its name."""
        self.dtypes: dict[DataType, None] = {}
        """Every type that values have."""
        self._zeros: dict[DataType, str] = {}

    def spell_body(self) -> list[str]:
        """The lines of the kernel's body, indented once."""
        lines = self.spell_statements(self._kernel.body)
        if not self._zeros:
            return lines
        note = "// Always 0: drivers take a literal's product for 0, whatever the other factor."
        return [f"{_INDENT}{note}", *map(self._spell_zero, self._zeros.items()), "", *lines]

    def _spell_zero(self, zero: tuple[DataType, str]) -> str:
        dtype, name = zero
        declaration = self._dialect.local(name, self._dialect.types[dtype], dtype)
        return f"{_INDENT}{declaration} = {self._dialect.zeros[dtype]};"

    # Statements ---------------------------------------------------------------------------

    def spell_statements(self, statements: Sequence[k.Statement], depth: int = 1) -> list[str]:
        """The lines of statements, indented `depth` times."""
        lines: list[str] = []
        for statement in statements:
            if lines and depth == 1 and isinstance(statement, k.For):
                lines.append("")
            lines += self._spell_statement(statement, depth)
        return lines

    def _spell_statement(self, statement: k.Statement, depth: int) -> list[str]:
        indent = _INDENT * depth
        match statement:
            case k.Let(local=local, value=value):
                return self._spell_let(local, value, indent, self._dialect.local)
            case k.Variable(local=local, value=value):
                return self._spell_let(local, value, indent, self._dialect.variable)
            case k.Assign():
                return self._spell_assignment(statement, indent)
            case k.Put():
                return [f"{indent}{self._spell_put(statement)}"]
            case k.Barrier():
                return [f"{indent}{self._dialect.barrier}"]
            case k.Store():
                return [f"{indent}{self._spell_store(statement)}"]
            case k.Prefetch():
                return [f"{indent}{self._spell_prefetch(statement)}"]
            case k.If(condition=condition, then=then):
                head = f"{indent}if ({self.spell(condition).text}) {{"
                return [head, *self.spell_statements(then, depth + 1), f"{indent}}}"]
            case k.For():
                unroll = self._dialect.unroll if statement.unroll else ""
                lines = [f"{indent}{unroll}"] if unroll else []
                head, first = self._spell_head(statement)
                lines += [f"{indent}{head}", *(f"{indent}{_INDENT}{line}" for line in first)]
                body = self.spell_statements(statement.body, depth + 1)
                return [*lines, *body, f"{indent}}}"]
            case k.PutHalf():
                return [f"{indent}{self._spell_half(statement)}"]
            case k.StoreWord():
                place = f"{self._names.spell(statement.buffer)}[{self.spell(statement.index).text}]"
                return [f"{indent}{place} = {self._names.spell(statement.word.name)};"]
            case k.Halve(variable=variable, start=first):
                name = self._names.spell(variable.name)
                head = f"for ({self._count(name, str(first))}; {name} > 0; {name} /= 2) {{"
                body = self.spell_statements(statement.body, depth + 1)
                return [f"{indent}{head}", *body, f"{indent}}}"]

    def _spell_head(self, loop: k.For) -> tuple[str, list[str]]:
        """The line that a loop begins with, and what stands first in its body."""
        syntax, name = self._dialect.syntax, self._names.spell(loop.variable.name)
        start, stop = self.spell(loop.start).text, self.spell(loop.stop)
        if loop.backwards:
            condition = syntax.countdown.format(i=name, start=start)
            first = [syntax.countdown_body.format(i=name)] if syntax.countdown_body else []
            return f"for ({self._count(name, stop.text)}; {condition}) {{", first
        step = syntax.increment.format(i=name) if loop.step == 1 else f"{name} += {loop.step}"
        condition = f"{name} < {stop.beside('<', is_first=False)}"
        return f"for ({self._count(name, start)}; {condition}; {step}) {{", []

    def _count(self, name: str, start: str) -> str:
        """The declaration of a loop's counter."""
        return self._dialect.syntax.counter.format(T=self.index_type, i=name, start=start)

    def spell_array(self, array: k.Array) -> str:
        """The declaration of an array, where the language wants one of its kind."""
        self.dtypes[array.dtype] = None
        syntax, name = self._dialect.syntax, self._names.spell(array.name)
        form = syntax.shared_array if array.shared else syntax.array
        return form.format(T=self._type_name(array.dtype, 1), x=name, n=array.size)

    def _spell_assignment(self, statement: k.Assign, indent: str) -> list[str]:
        name, value = self._names.spell(statement.local.name), statement.value
        made = self.spell_vector(value)
        if value.type.dtype.is_float and _adds(statement):
            return [f"{indent}{name} += {made.text.removeprefix(f'{name} + ')};"]
        return [f"{indent}{name} = {made.text};"]

    def _spell_put(self, put: k.Put) -> str:
        lanes = put.value.type.lanes
        places = self._place_element(put.array, put.index, lanes)
        places["a"] = self._repeat(put.value, self._pin(put.value)).text
        return self._fill(self._dialect.puts, places, DataType.INDEX, lanes, DataType.INDEX)

    def _place_element(self, array: str, index: k.Expression, lanes: int) -> dict[str, str | int]:
        name, text = self._names.spell(array), self.spell(index).text
        at = name if text == "0" else f"{name} + {text}"
        return {"p": name, "i": text, "at": at, "n": lanes}

    def _spell_let(
        self,
        local: k.Local,
        value: k.Expression,
        indent: str,
        declare: Callable[[str, str, DataType], str],
    ) -> list[str]:
        made = self.spell(value) if local.name in self._stored else self._pin(value)
        if made.mask:
            self._masks[local.name] = made.mask
            type_name = self._type_name(_SIGNED[made.mask], local.type.lanes)
        else:
            # Another of that name, out of sight by now, may have been a mask.
            self._masks.pop(local.name, None)
            type_name = self._type_name(local.type.dtype, local.type.lanes)
        declaration = declare(self._names.spell(local.name), type_name, local.type.dtype)
        head = f"{indent}{declaration} ="
        line = f"{head} {made.text};"
        if len(line) <= _WIDTH or not made.pieces:
            return [line]
        first, *rest = made.pieces
        rest[-1] += ";"
        return [f"{head} {first}", *(f"{indent}{_INDENT}{piece}" for piece in rest)]

    def _spell_store(self, store: k.Store) -> str:
        buffer = self._buffers[store.buffer]
        lanes = store.value.type.lanes
        value = self.spell_vector(store.value)
        if value.mask:
            value = self._convert_mask(value, 1, lanes)
        index = self._spell_place(store.index)
        places = {
            "p": self._names.spell(store.buffer),
            "i": index.inner,
            "j": index.text,
            "n": lanes,
            "a": value.text,
            "0": value.inner,
        }
        spelling = self._dialect.stores[buffer.dtype]
        if store.streaming is not None and buffer.dtype in self._dialect.streaming:
            spelling = self._dialect.streaming[buffer.dtype]
            places["f"] = self.spell(store.streaming).text
        return self._fill(spelling, places, buffer.dtype.compute, lanes, buffer.dtype)

    def _spell_prefetch(self, prefetch: k.Prefetch) -> str:
        dtype = self._buffers[prefetch.buffer].dtype
        index = self.spell(prefetch.index)
        places: dict[str, str | int] = {
            "p": self._names.spell(prefetch.buffer),
            "i": index.inner,
            "j": index.text,
        }
        return self._fill(self._dialect.prefetches[dtype], places, dtype.compute, 1, dtype)

    def _spell_half(self, put: k.PutHalf) -> str:
        dtype = self._buffers[put.buffer].dtype
        value = self.spell(put.value)
        places: dict[str, str | int] = {
            "w": self._names.spell(put.word.name),
            "h": self.spell(put.half).inner,
            "a": value.text,
            "0": value.inner,
        }
        return self._fill(self._dialect.halves[dtype], places, dtype.compute, 1, dtype)

    # Expressions --------------------------------------------------------------------------

    def spell(self, expression: k.Expression) -> Text:
        """The text of an expression. A repeated scalar stays a scalar: see `spell_vector`."""
        self.dtypes[expression.type.dtype] = None
        match expression:
            case k.Literal(type=type_, value=value):
                text = self._dialect.literal(type_.dtype, value)
                if self._hexadecimal and type_.dtype is DataType.UINT32 and value > 0xFF:
                    text = text.replace(f"{value}", f"{value:#010x}")
                return Text(text)
            case k.Local(name=name):
                return Text(self._names.spell(name), mask=self._masks.get(name, 0))
            case k.Scalar(name=name):
                return Text(self._dialect.scalar.format(x=self._names.spell(name)))
            case k.Position():
                return self._spell_position(expression)
            case k.Load():
                return self._spell_load(expression)
            case k.Operate(operation=Definition() as operation, operands=operands):
                given = ", ".join(self._pin(o).text for o in operands)
                return Text(f"{self._use_function(operation)}({given})")
            case k.Operate():
                return self._spell_operation(expression)
            case k.Choose():
                return self._spell_choice(expression)
            case k.Convert():
                return self._spell_conversion(expression)
            case k.Reinterpret(operand=operand):
                name = self._type_name(expression.type.dtype, expression.type.lanes)
                given = self.spell(operand).text
                return Text(self._dialect.reinterpret.format(R=name, a=given))
            case k.Broadcast():
                return self.spell(expression.operand)
            case k.Element(array=array, index=index):
                lanes = expression.type.lanes
                places = self._place_element(array, index, lanes)
                spelling = self._dialect.elements
                return Text(self._fill(spelling, places, DataType.INDEX, lanes, DataType.INDEX))
            case k.Join(low=low, high=high):
                name = self._type_name(expression.type.dtype, expression.type.lanes)
                pieces = (f"({name})({self.spell(low).text},", f"{self.spell(high).text})")
                return Text(" ".join(pieces), pieces=pieces)
            case k.Shuffle():
                return self._spell_shuffle(expression)
            case k.Numbers(values=values, type=type_):
                numbers = ", ".join(map(str, values))
                return Text(f"({self._type_name(type_.dtype, type_.lanes)})({numbers})")
            case k.Lead(buffer=buffer, bytes=bytes_):
                places = {"p": self._names.spell(buffer), "n": bytes_, "I": self.index_type}
                size = self._buffers[buffer].dtype.bytes
                return Text(self._dialect.lead.format(s=size, **places))

    def spell_vector(self, expression: k.Expression) -> Text:
        """The text of an expression where a vector must stand: a scalar repeated is spelled out."""
        return self._repeat(expression, self.spell(expression))

    def _pin(self, expression: k.Expression, taker: str = "") -> Text:
        """The text of an expression that something else takes, an operation if `taker` names it,
        kept as it is where the language lets compilers make one of the two."""
        made, pin, dtype = self.spell(expression), self._dialect.pin, expression.type.dtype
        if pin is None or not isinstance(expression, k.Operate):
            return made
        unpinned = self._dialect.unpinned.get(expression.operation.name)
        if unpinned is None or taker in unpinned or not dtype.is_float:
            return made
        return self._write_pin(pin, made, dtype)

    def _write_pin(self, pin: Spelling, made: Text, dtype: DataType) -> Text:
        text = self._fill(pin, {"a": made.text}, dtype, 1, dtype)
        head, _, tail = text.partition(made.text)
        first, *rest = made.pieces or ("",)
        pieces = (head + first, *rest[:-1], rest[-1] + tail) if rest else ()
        return Text(text, pieces=pieces)

    def _repeat(self, expression: k.Expression, made: Text) -> Text:
        """An expression that is spelled, where a vector must stand."""
        lanes = expression.type.lanes
        if isinstance(expression, k.Literal) and expression.type == k.INDEX:
            return Text(made.text + self._dialect.index_suffixes[self._index])
        if not isinstance(expression, k.Broadcast):
            return made
        if expression.type.dtype is DataType.BOOL:
            text = f"({self._type_name(DataType.INT32, lanes)})({made.inner} ? -1 : 0)"
            return Text(text, mask=4)
        return Text(f"({self._type_name(expression.type.dtype, lanes)})({_bare(made)})")

    def _spell_position(self, position: k.Position) -> Text:
        launch = self._kernel.launch
        kind = "lane"
        if position.geometry is k.Geometry.GROUP:
            kind = "single" if launch.group_size == 1 else "group"
            kind = "rows" if launch.row is not None else kind
        signed = f"signed {kind}" if self._kernel.index_signed else ""
        kind = signed if signed in self._dialect.positions else kind
        text = self._dialect.positions[kind].format(I=self.index_type, row=launch.row)
        return Text(text, compound=kind == "rows")

    def _spell_load(self, load: k.Load) -> Text:
        buffer = self._buffers[load.buffer]
        index = self._spell_place(load.index)
        lanes = load.type.lanes
        places = {
            "p": self._names.spell(load.buffer),
            "i": index.inner,
            "j": index.text,
            "n": lanes,
        }
        spelling = self._dialect.loads[buffer.dtype]
        text = self._fill(spelling, places, load.type.dtype, lanes, buffer.dtype)
        mask = 1 if load.type.dtype is DataType.BOOL and lanes > 1 else 0
        return Text(text, spelling.compound, mask)

    def _spell_place(self, index: k.Expression) -> Text:
        """A position where an element is picked."""
        made = self.spell(index)
        if self._kernel.index_bits == 32 or isinstance(index, k.Literal):
            return made
        text = self._dialect.wide_index.format(j=made.text)
        return Text(text, compound=made.compound and text == made.text)

    def _find_operation(self, expression: k.Operate) -> tuple[Entry, DataType]:
        """How an operation is written, and on which type. Of positions, what their plain spelling
        has not got, and quotients whose divisor may be 0, are those of integers as wide."""
        name, dtype = expression.operation.name, expression.operands[0].type.dtype
        entry = self._dialect.operations[name, dtype]
        if dtype is not DataType.INDEX:
            return entry, dtype
        divisor = expression.operands[-1]
        divisor = divisor.operand if isinstance(divisor, k.Broadcast) else divisor
        safe = isinstance(divisor, k.Literal) and divisor.value > 0
        if isinstance(entry, Unsupported) or (name in ("div", "mod") and not safe):
            dtype = self._index_integer
            entry = self._dialect.operations[name, dtype]
        return entry, dtype

    def _spell_operation(self, expression: k.Operate) -> Text:
        operand_type = expression.operands[0].type
        lanes = operand_type.lanes
        entry, dtype = self._find_operation(expression)
        if isinstance(entry, Unsupported):
            raise InternalError(f"unsupported {expression.operation} reached the renderer")
        if lanes == 1 and entry.within is not None and _is_within(expression.operands[1]):
            entry = dataclasses.replace(entry, text=entry.within)
        operation = expression.operation
        arithmetic = operation.name in _ARITHMETIC or operation.transcendental
        zeros = [self._hide_zero(o) if arithmetic else None for o in expression.operands]
        plain = [
            z or self._pin(o, operation.name)
            for z, o in zip(zeros, expression.operands, strict=True)
        ]
        pin = self._dialect.pin
        if pin and dtype.is_float and not entry.helper and operation.name not in ("add", "mul"):
            # A compiler knows what x - x and x == x are, but for NaN.
            first, *rest = expression.operands
            plain[1:] = [
                self._write_pin(pin, p, dtype) if o == first else p
                for o, p in zip(rest, plain[1:], strict=True)
            ]
        wide = [
            z or self._repeat(o, p)
            for z, o, p in zip(zeros, expression.operands, plain, strict=True)
        ]
        mask = 0
        if lanes > 1 and dtype is DataType.BOOL:
            mask = max(w.mask for w in wide)
            wide = plain = [self._convert_mask(w, mask, lanes) for w in wide]
        elif lanes > 1 and expression.type.dtype is DataType.BOOL:
            mask = self._measure(dtype)
        operator = _find_operator(entry, lanes)
        inner = [p.beside(operator, is_first=n == 0) for n, p in enumerate(plain)]
        places: dict[str, str | int] = {
            **{str(n): text for n, text in enumerate(inner)},
            **{
                letter: f"({self._type_name(dtype, lanes)})({w.text})" if w.promoted else w.text
                for letter, w in zip("ab", wide, strict=False)
            },
        }
        text = self._fill(entry, places, dtype, lanes, dtype)
        pieces = ()
        if len(plain) == 2 and entry.compound and text.startswith(inner[0]):
            pieces = (inner[0], text[len(inner[0]) :].lstrip())
        return Text(text, entry.compound, mask, pieces, operator)

    def _hide_zero(self, operand: k.Expression) -> Text | None:
        """The name of a run-time zero for a literal zero, where the dialect has one."""
        dtype = operand.type.dtype
        if (
            not isinstance(operand, k.Literal)
            or operand.value != 0
            or dtype not in self._dialect.zeros
        ):
            return None
        if dtype not in self._zeros:
            self._zeros[dtype] = self._names.make("zero")
        name = self._zeros[dtype]
        return (
            Text(f"-{name}", compound=True) if math.copysign(1, operand.value) < 0 else Text(name)
        )

    def _hide_zero_beside(self, side: k.Expression, other: k.Expression) -> Text | None:
        """The same for one side of a choice, where the other is one: drivers make a converted
        condition of such a choice, and its negative of one of -1, which loses the zero's sign."""
        if not isinstance(side, k.Literal) or not isinstance(other, k.Literal):
            return None
        if side.value != 0 or abs(other.value) != 1:
            return None
        kept = other.value == 1 and math.copysign(1, side.value) > 0
        return None if kept else self._hide_zero(side)

    def _spell_choice(self, expression: k.Choose) -> Text:
        lanes = expression.type.lanes
        condition = self.spell(expression.condition)
        sides = expression.then, expression.otherwise
        then, otherwise = (
            self._hide_zero_beside(side, other) or self._repeat(side, self._pin(side))
            for side, other in (sides, sides[::-1])
        )
        mask = 0
        if lanes > 1 and expression.type.dtype is DataType.BOOL:
            mask = max(then.mask, otherwise.mask, condition.mask)
            then = self._convert_mask(then, mask, lanes)
            otherwise = self._convert_mask(otherwise, mask, lanes)
        if condition.mask:
            width = mask or self._measure(expression.type.dtype)
            condition = self._convert_mask(condition, width, lanes)
        syntax = self._dialect.syntax
        # Beside a comma, `<` and `>` may be taken for brackets.
        bare = not syntax.is_infix and expression.type.dtype is not DataType.BOOL
        c, a, b = (t.text if bare else t.inner for t in (condition, then, otherwise))
        pieces = tuple(piece.format(c=c, a=a, b=b) for piece in syntax.choice)
        promoted = lanes == 1 and expression.type.dtype in self._dialect.promoted
        return Text(" ".join(pieces), syntax.is_infix, mask, pieces, promoted=promoted)

    def _spell_shuffle(self, shuffle: k.Shuffle) -> Text:
        dtype, lanes = shuffle.type.dtype, shuffle.type.lanes
        entry = self._dialect.shuffles
        if isinstance(entry, Unsupported):
            raise InternalError(f"a shuffle reached the renderer: {entry.reason}")
        places: dict[str, str | int] = {
            "a": self.spell_vector(shuffle.first).text,
            "b": self.spell_vector(shuffle.second).text,
            "lanes": ", ".join(map(str, shuffle.lanes)),
        }
        text = self._fill(entry, places, dtype, lanes, dtype)
        cut = text.index(str(places["lanes"]))
        return Text(text, pieces=(text[:cut].rstrip(), text[cut:]))

    def _spell_conversion(self, expression: k.Convert) -> Text:
        source, target = expression.operand.type.dtype, expression.type.dtype
        lanes = expression.type.lanes
        # A position is the integer of its width under another name.
        source = self._index_integer if source is DataType.INDEX else source
        target = self._index_integer if target is DataType.INDEX else target
        if source is target:
            return self.spell(expression.operand)
        entry = self._dialect.conversions[source, target]
        if isinstance(entry, Unsupported):
            raise InternalError(f"unsupported conversion {source} to {target} reached the renderer")
        operand = self._pin(expression.operand)
        if operand.mask:
            operand = self._convert_mask(operand, target.bytes, lanes)
        places: dict[str, str | int] = {
            "0": operand.inner,
            "a": operand.text,
            "R": self._type_name(target, lanes),
        }
        mask = source.bytes if target is DataType.BOOL and lanes > 1 else 0
        text = self._fill(entry, places, source, lanes, source, target)
        return Text(text, entry.compound, mask)

    def _measure(self, dtype: DataType) -> int:
        """The bytes of a value."""
        return (self._index_integer if dtype is DataType.INDEX else dtype).bytes

    def _convert_mask(self, mask: Text, width: int, lanes: int) -> Text:
        if mask.mask == width:
            return mask
        name = self._type_name(_SIGNED[width], lanes)
        return Text(f"convert_{name}({mask.text})", mask=width)

    # Tables -------------------------------------------------------------------------------

    def _type_name(self, dtype: DataType, lanes: int) -> str:
        name = self.index_type if dtype.kind is Kind.INDEX else self._dialect.types[dtype]
        return name + (str(lanes) if lanes > 1 else "")

    def _name_integer(self, dtype: DataType, lanes: int) -> str:
        """Nothing, where the language has none of that size."""
        return self._type_name(dtype, lanes) if dtype in self._dialect.types else ""

    def _fill(
        self,
        spelling: Spelling,
        places: dict[str, str | int],
        dtype: DataType,
        lanes: int,
        storage: DataType,
        result: DataType | None = None,
    ) -> str:
        text = spelling.text if lanes == 1 or spelling.vector is None else spelling.vector
        if lanes == 4 and spelling.four is not None:
            text = spelling.four
        places = dict(places)
        if dtype is not DataType.INDEX and (dtype is not DataType.BOOL or lanes == 1):
            places["T"] = self._type_name(dtype, lanes)
            if dtype is not DataType.BOOL and "{U}" in text:
                places["U"] = self._type_name(_UNSIGNED[dtype.bytes], lanes)
        helper = (spelling.vector_helper if lanes > 1 else None) or spelling.helper
        if isinstance(helper, Definition):
            places["H"] = self._use_function(helper)
        elif helper is not None and "{H}" in text:
            places["H"] = self._use_helper(helper, dtype, lanes, storage, result)
        positional = [places.pop(n) for n in ("0", "1") if n in places]
        return text.format(*positional, **places)

    def _use_helper(
        self,
        key: str,
        dtype: DataType,
        lanes: int,
        storage: DataType,
        result: DataType | None = None,
    ) -> str:
        """The name of a helper for a type, or for a conversion from it; its text joins those the
        file needs."""
        type_name = self._type_name(dtype, lanes)
        helpers = self._dialect.helpers
        exact = helpers.get(f"{key}_{type_name}") or helpers.get(f"{key}_x{lanes}")
        helper = exact or helpers[key]
        places = {
            "K": helper.key,
            "T": type_name,
            "L": str(lanes) if lanes > 1 else "",
            "X": f"_x{lanes}" if lanes > 1 else "",
            "R": "" if result is None else self._type_name(result, lanes),
        }
        name = helper.name.substitute(places)
        if name in self.helpers:
            return name
        for needed in helper.needs:
            places[needed] = self._use_helper(needed, dtype, lanes, storage)
        stored = self._dialect.storage[storage]
        word = _UNSIGNED if dtype.kind is Kind.UNSIGNED else _SIGNED
        places |= {
            "H": name,
            "U": self._name_integer(_UNSIGNED[dtype.bytes], lanes),
            "I": self._name_integer(_SIGNED[dtype.bytes], lanes),
            "W": self._name_integer(word[4], lanes),
            "S": stored if isinstance(stored, str) else "",
            "B": self._name_integer(_UNSIGNED[storage.bytes], lanes),
        }
        if result is not None and result.is_integer:
            literal, limits = self._dialect.literal, np.iinfo(result.dtype)
            places |= {"LEAST": literal(result, limits.min), "MOST": literal(result, limits.max)}
            places |= {"LOW": literal(dtype, limits.min), "HIGH": literal(dtype, limits.max + 1)}
        self.helpers[name] = helper.text.substitute(places)
        return name

    def _use_function(self, definition: Definition) -> str:
        """The name of a function that is written out; its text, and what that needs, join what
        the file needs."""
        needed = spell_function(self._dialect, definition)
        self.helpers |= {name: text for name, text in needed.items() if name not in self.helpers}
        return PREFIX + definition.name


@functools.cache
def spell_function(dialect: Dialect, definition: Definition) -> Mapping[str, str]:
    """The text of a function after those of the helpers that it needs, by their names."""
    function = definition.function()
    kernel = tidy(name_arithmetic(function.as_kernel(), dialect.limits.precise))
    mangler = Mangler(dialect.reserved)
    # A hidden zero is seen by kernels alone, and what is given is no argument of the kernel.
    plain = dataclasses.replace(dialect, zeros=MappingProxyType({}), scalar="{x}")
    speller = Speller(plain, kernel, mangler, hexadecimal=True)
    body = speller.spell_body()
    given = [(dialect.types[p.type.dtype], mangler.spell(p.name)) for p in function.parameters]
    result = dialect.types[function.result.type.dtype]
    name = PREFIX + definition.name
    lines = [f"// {line}".rstrip() for line in function.note]
    lines += [dialect.function(result, name, given), *body]
    lines += [f"{_INDENT}return {mangler.spell('result')};", "}"]
    return {**speller.helpers, name: "\n".join(lines)}


def _find_operator(entry: Spelling, lanes: int) -> str:
    """The operator of a spelling that is two operands and it, and nothing else."""
    text = entry.text if lanes == 1 or entry.vector is None else entry.vector
    found = _INFIX.fullmatch(text)
    return found[1] if found and entry.compound else ""


def _find_stored(statements: Sequence[k.Statement]) -> frozenset[str]:
    """The locals that are stored, and that nothing else takes."""
    stored: set[str] = set()
    taken: set[str] = set()
    pending = list(statements)
    while pending:
        statement = pending.pop()
        pending += find_body(statement)
        expressions = list_expressions(statement)
        if isinstance(statement, k.Store) and isinstance(statement.value, k.Local):
            stored.add(statement.value.name)
            expressions = (statement.index,)
        taken.update(e.name for x in expressions for e in walk(x) if isinstance(e, k.Local))
    return frozenset(stored - taken)


def _is_within(distance: k.Expression) -> bool:
    """Whether a shift is known to be by less than the number of bits."""
    bits = 8 * distance.type.dtype.bytes
    return isinstance(distance, k.Literal) and 0 <= distance.value < bits


def _adds(statement: k.Assign) -> bool:
    """Whether something is added to what is assigned."""
    value = statement.value
    return (
        isinstance(value, k.Operate)
        and value.operation.name == "add"
        and value.operands[0] == statement.local
    )


def _bare(text: Text) -> str:
    """Without the parentheses that a negative literal carries, where others follow anyway."""
    inside = text.text[1:-1]
    if text.text.startswith("(-") and text.text.endswith(")") and "(" not in inside:
        return inside
    return text.text
