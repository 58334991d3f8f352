"""Spelling of kernel IR expressions in a dialect: nesting of spellings, scalars with vectors,
widths of masks, and the helper functions that a file needs."""

from __future__ import annotations

import abc
import functools
import math
import re
from collections.abc import Sequence

import numpy as np

from dmlc.codegen.dialect import FOUR, INFIX, Dialect
from dmlc.codegen.names import Mangler
from dmlc.codegen.quotients import SIGNED, UNSIGNED, Quotients
from dmlc.codegen.text import Text
from dmlc.codegen.trace import Definition
from dmlc.codegen.zeros import Zeros
from dmlc.index.intervals import is_within
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import ZERO, add, find_repeated, multiply, operate, subtract
from dmlc.kernel.reaches import Reaches
from dmlc.kernel.rewrite import list_expressions, walk, walk_statements
from dmlc.scalars import DataType, Kind
from dmlc.scalars.operation import Spelling, Unsupported
from dmlc.source import InternalError

_ARITHMETIC = ("add", "sub", "mul", "fma", "div", "div_nearest")
_SPLIT = "\0"
"""Marks possible line breaks."""
_INFIX = re.compile(r"\{0\} (\S+) \{1\}")


class Expressions(abc.ABC):
    """Speller of one kernel's expressions. Collects the helper functions that they call, in order
    of first use."""

    def __init__(
        self,
        dialect: Dialect,
        kernel: k.Kernel,
        mangler: Mangler,
        *,
        hexadecimal: bool = False,
    ) -> None:
        """Unsigned literals of more than a byte are written in hexadecimal if they are bit patterns
        and `hexadecimal` is set."""
        self._dialect = dialect
        self._hexadecimal = hexadecimal
        self._kernel = kernel
        self._names = mangler
        self._buffers = {b.name: b for b in kernel.buffers}
        self._arrays = {a.name: a for a in kernel.arrays}
        self._masks: dict[str, int] = {}
        self._words: dict[str, k.Buffer] = {}
        """Locals that hold raw words of a buffer."""
        self._atomic = _find_atomic(kernel, dialect)
        """Buffers whose words are changed atomically, and need an atomic type."""
        self._stored = _find_stored(kernel.body) if dialect.pin else frozenset[str]()
        self._quotients = Quotients(dialect, kernel, Reaches(kernel))
        self._index = (kernel.index_bits, kernel.index_signed)
        self.index_type = dialect.index_types[self._index]
        self._index_integer = self._quotients.index_integer
        self.helpers: dict[str, str] = {}
        """Text of each helper, by name."""
        self.dtypes: dict[DataType, None] = {}
        """Types of all values."""
        self._zeros = Zeros(dialect, mangler)

    def spell(self, expression: k.Expression) -> Text:
        """Text of an expression. A broadcast scalar stays a scalar; see `spell_vector`."""
        self.dtypes[expression.type.dtype] = None
        match expression:  # What is most common comes first.
            case k.Local(name=name):
                known = self._zeros.is_known(expression)
                return Text(self._names.spell(name), mask=self._masks.get(name, 0), known=known)
            case k.Operate(operation=Definition() as operation, operands=operands):
                given = [self._repeat(o, self._pin(o)) for o in operands]
                name = self._use_function(operation, expression.type.lanes)
                text = f"{name}({', '.join(g.text for g in given)})"
                return Text(text, known=all(g.known for g in given))
            case k.Operate():
                return self._spell_operation(expression)
            case k.Literal(type=type_, value=value):
                text = self._dialect.literal(type_.dtype, value)
                if self._hexadecimal and type_.dtype is DataType.UINT32 and value > 0xFF:
                    text = text.replace(f"{value}", f"{value:#010x}")
                # Zeros of floats are hidden.
                return Text(text, known=value != 0 or not type_.dtype.is_float)
            case k.Scalar(name=name):
                return Text(self._dialect.scalar.format(x=self._names.spell(name)))
            case k.Position():
                return self._spell_position(expression)
            case k.Load():
                return self._spell_load(expression)
            case k.Select():
                return self._spell_choice(expression)
            case k.Convert():
                return self._spell_conversion(expression)
            case k.Reinterpret(operand=operand):
                name = self._type_name(expression.type.dtype, expression.type.lanes)
                made, element = self.spell(operand), self._type_name(expression.type.dtype, 1)
                text = self._dialect.reinterpret.format(R=name, E=element, a=made.text)
                return Text(text, known=made.known)
            case k.Broadcast():
                made = self.spell(expression.operand)
                return made if self._dialect.syntax.widens else self._widen(expression, made)
            case k.LoadLocal(array=array, index=index):
                lanes, spelling = expression.type.lanes, self._dialect.elements
                if lanes == self._arrays[array].lanes:
                    lanes = 1
                if lanes > 1 and spelling.vector is None:
                    return self._spell_elements(expression)
                places = self._place_element(array, index, expression.type.lanes)
                text = self._fill(spelling, places, DataType.INDEX, lanes, DataType.INDEX)
                stored = self._arrays[array].dtype
                if not stored.is_storage_only:
                    return Text(text)
                places["e"], spelling = text, self._dialect.loads[stored]
                text = self._fill(spelling, places, stored.compute, lanes, stored)
                return Text(text, spelling.compound)
            case k.Join(low=low, high=high):
                name = self._type_name(expression.type.dtype, expression.type.lanes)
                parts = _list_parts(expression, 1)
                made = list(map(self.spell, parts if len(parts) == 4 else (low, high)))
                half = len(made) // 2
                first, second = (", ".join(p.text for p in made[n : n + half]) for n in (0, half))
                text = self._dialect.syntax.lanes.format(T=name, a=f"{first}, {second}")
                cut = text.index(f"{first}, ") + len(first) + 1
                pieces = (text[:cut], text[cut + 1 :])
                return Text(" ".join(pieces), pieces=pieces, known=all(p.known for p in made))
            case k.Extract(operand=k.Local(name=name)) if name in self._words:
                return self._unpack(expression, self._words[name])
            case k.Extract(operand=operand, lanes=lanes):
                made, syntax = self.spell_vector(operand), self._dialect.syntax
                vector = made.text if made.text.isidentifier() else f"({made.text})"
                taken = "".join(syntax.lane_letters[lane] for lane in lanes)
                return Text(f"{vector}.{syntax.lane_prefix}{taken}", known=made.known)
            case k.Shuffle():
                return self._spell_shuffle(expression)
            case k.Numbers(values=values, type=type_):
                name = self._type_name(type_.dtype, type_.lanes)
                numbers = ", ".join(map(str, values))
                text = self._dialect.syntax.lanes.format(T=name, a=numbers)
                return Text(text, known=True)
            case k.Lead(buffer=buffer, bytes=bytes_):
                places = {"p": self._names.spell(buffer), "n": bytes_, "I": self.index_type}
                size = self._buffers[buffer].dtype.bytes
                return Text(self._dialect.lead.format(s=size, **places))

    def spell_vector(self, expression: k.Expression) -> Text:
        """Text of an expression as a vector: a broadcast scalar is written out."""
        return self._repeat(expression, self.spell(expression))

    def _pin(self, expression: k.Expression, taker: str = "") -> Text:
        """Text of an operand, pinned if the language lets compilers fuse it with the operation
        `taker` that reads it."""
        made, pin, dtype = self.spell(expression), self._dialect.pin, expression.type.dtype
        if pin is None or not isinstance(expression, k.Operate):
            return made
        unpinned = self._dialect.unpinned.get(expression.operation.name)
        if unpinned is None or taker in unpinned or not dtype.is_float:
            return made
        return self._write_pin(pin, made, expression.type)

    def _write_pin(self, pin: Spelling, made: Text, type_: k.Type) -> Text:
        text = self._fill(pin, {"a": made.text}, type_.dtype, type_.lanes, type_.dtype)
        head, _, tail = text.partition(made.text)
        first, *rest = made.pieces or ("",)
        pieces = (head + first, *rest[:-1], rest[-1] + tail) if rest else ()
        return Text(text, pieces=pieces, known=made.known)

    def _repeat(self, expression: k.Expression, made: Text) -> Text:
        """Vector form of a spelled expression."""
        lanes = expression.type.lanes
        if isinstance(expression, k.Literal) and expression.type == k.INDEX:
            return Text(made.text + self._dialect.index_suffixes[self._index], known=True)
        if not isinstance(expression, k.Broadcast) or not self._dialect.syntax.widens:
            return made
        if expression.type.dtype is DataType.BOOL and self._dialect.masks:
            text = f"({self._type_name(DataType.INT32, lanes)})({made.inner} ? -1 : 0)"
            return Text(text, mask=4, known=made.known)
        return self._widen(expression, made)

    def _widen(self, expression: k.Broadcast, made: Text) -> Text:
        """Vector with a spelled value in each lane."""
        name = self._type_name(expression.type.dtype, expression.type.lanes)
        return Text(self._dialect.syntax.repeated.format(T=name, a=made.bare), known=made.known)

    def _spell_position(self, position: k.Position) -> Text:
        launch, matrices = self._kernel.launch, self._dialect.matrices
        if position.geometry is k.Geometry.SUBGROUP:
            if matrices is None:
                raise InternalError(f"target '{self._dialect.name}' has no subgroups")
            return Text(matrices.subgroup)
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
        index = self._spell_index(load.index)
        lanes = load.type.lanes
        places = {
            "p": self._names.spell(load.buffer),
            "i": index.inner,
            "j": index.text,
            "at": self._spell_address(load.buffer, index),
            "n": lanes,
            "e": self._read_element(load.buffer, load.index, lanes),
            "h": self._spell_shift(load.buffer, load.index).text,
        }
        spelling = self._dialect.of_buffer(buffer).loads[buffer.dtype]
        text = self._fill(spelling, places, load.type.dtype, lanes, buffer.dtype)
        is_mask = load.type.dtype is DataType.BOOL and lanes > 1 and self._dialect.masks
        return Text(text, spelling.compound, 1 if is_mask else 0)

    def _count_words(self, buffer: k.Buffer, lanes: int) -> int:
        """Number of words of `lanes` neighbours."""
        return max(1, lanes // self._count_packed(buffer))

    def _unpack(self, part: k.Extract, buffer: k.Buffer) -> Text:
        """Four neighbours of those that words hold."""
        words = self._count_words(buffer, len(part.lanes))
        first = part.lanes[0] // self._count_packed(buffer)
        syntax, whole = self._dialect.syntax, self.spell(part.operand).text
        letters = syntax.lane_prefix + syntax.lane_letters[first : first + words]
        places: dict[str, str | int] = {"e": f"{whole}.{letters}"}
        dtype, lanes = part.type.dtype, part.type.lanes
        spelling = self._dialect.of_buffer(buffer).loads[buffer.dtype]
        return Text(self._fill(spelling, places, dtype, lanes, buffer.dtype), spelling.compound)

    def _pack(self, value: k.Expression, buffer: k.Buffer) -> Text:
        """Words that neighbours are stored as: a vector with one per four neighbours."""
        spelling = self._dialect.of_buffer(buffer).packs[buffer.dtype]
        dtype = value.type.dtype
        parts = [
            self._fill(
                spelling, {"a": self.spell_vector(part).text}, dtype, part.type.lanes, buffer.dtype
            )
            for part in _list_parts(value, FOUR)
        ]
        if len(parts) == 1:
            return Text(parts[0])
        storage = str(self._dialect.of_buffer(buffer).storage[buffer.dtype])
        name = self._name_vector(storage, self._count_words(buffer, value.type.lanes))
        lines = (", ".join(parts[n : n + 2]) for n in range(0, len(parts), 2))
        return Text(self._dialect.syntax.lanes.format(T=name, a=",\n    ".join(lines)))

    def _spell_index(self, index: k.Expression) -> Text:
        """Index in a subscript."""
        made = self.spell(index)
        if self._kernel.index_bits == 32 or isinstance(index, k.Literal):
            return made
        text = self._dialect.wide_index.format(j=made.text)
        return made if text == made.text else Text(text)

    def _spell_address(self, name: str, index: Text) -> str:
        """Address of an element of a buffer or an array."""
        start = self._names.spell(name)
        return start if index.text == "0" else f"{start} + {index.beside('+', is_first=True)}"

    def name_element(self, buffer: str) -> str:
        """Element type of a buffer."""
        found = self._buffers[buffer]
        storage = str(self._dialect.of_buffer(found).storage[found.dtype])
        if self._dialect.atomics is not None and buffer in self._atomic:
            return self._dialect.atomics.type.format(T=storage)
        return self._name_vector(storage, self._count_words(found, found.lanes))

    def _count_packed(self, buffer: k.Buffer) -> int:
        """Number of elements that share a word of a buffer; 1 if none do."""
        packed = self._dialect.of_buffer(buffer).limits.packed_types
        return 4 // buffer.dtype.bytes if buffer.dtype in packed else 1

    def _read_element(self, buffer: str, index: k.Expression, lanes: int) -> str:
        """Element of a buffer to be read, in the form of `_spell_element`."""
        element = self._spell_element(buffer, index, lanes)
        if self._dialect.atomics is not None and buffer in self._atomic:
            return self._dialect.atomics.load.format(e=element)
        return element

    def _spell_element(self, buffer: str, index: k.Expression, lanes: int) -> str:
        """Element of a buffer, or as many as there are lanes, in array syntax; or the word that
        holds it."""
        name, found = self._names.spell(buffer), self._buffers[buffer]
        packed = self._count_packed(found)
        width = max(found.lanes, packed)
        place, _ = self._divide_index(index, width)
        element = f"{name}[{self._spell_index(place).text}]"
        if lanes > 1 or width == packed:
            return element
        word, _ = self._divide_index(index, packed)
        lane = self._find_lane(word, width // packed)
        return f"{element}[{self._spell_index(lane).text}]"

    def _spell_shift(self, buffer: str, index: k.Expression) -> Text:
        """First bit of an element in its word."""
        found = self._buffers[buffer]
        packed, bits = self._count_packed(found), 8 * found.dtype.bytes
        _, rest = self._divide_index(index, packed)
        if isinstance(rest, k.Literal):
            return Text(str(int(rest.value) * bits))
        lane = operate("bit_and", rest, k.Literal(k.INDEX, packed - 1))
        shift = self._spell_index(operate("mul", lane, k.Literal(k.INDEX, bits)))
        if self._kernel.index_signed and self._dialect.shift_type:
            return Text(f"{self._dialect.shift_type}({shift.text})")
        return shift

    def _spell_counted(self, expression: k.Expression, counted: DataType) -> Text:
        """Nonnegative index as an unsigned integer."""
        lanes = expression.type.lanes
        if isinstance(expression, k.Broadcast):
            made = self._spell_counted(expression.operand, counted)
            return self._repeat(k.Broadcast(expression.operand, k.Type(counted, lanes)), made)
        if isinstance(expression, k.Literal):
            return self.spell(k.Literal(k.Type(counted), expression.value))
        is_counted = self._quotients.find_counted(expression) is counted
        if not isinstance(expression, k.Operate) or not is_counted:
            return self.spell(k.Convert(expression, k.Type(counted, lanes)))
        operator = INFIX[expression.operation.name].split()[1]
        sides = [self._spell_counted(operand, counted) for operand in expression.operands]
        inner = [side.beside(operator, is_first=n == 0) for n, side in enumerate(sides)]
        return Text(f" {operator} ".join(inner), compound=True, operator=operator)

    def _spell_operation(self, expression: k.Operate) -> Text:
        operation, operands = expression.operation, expression.operands
        lanes = operands[0].type.lanes
        counted = self._quotients.find_counted(expression)
        if counted is not None:
            made = self._spell_counted(expression, counted)
            return self._convert(made, counted, self._index_integer, lanes)
        entry, dtype = self._quotients.find_operation(expression)
        if isinstance(entry, Unsupported):
            raise InternalError(f"unsupported {operation} reached the renderer")
        chosen = self._choose_extreme(expression) if entry.helper and dtype.is_float else None
        if chosen is not None:
            return self._spell_choice(chosen)
        within = entry.within
        # A cast in it may be for scalars alone.
        may_stand = within is not None and (lanes == 1 or _find_operator(within) != "")
        if within is not None and may_stand and _is_within(find_repeated(operands[1])):
            entry = Spelling(within, compound=True)
        arithmetic = operation.name in _ARITHMETIC
        hides = bool(self._dialect.zeros) and (arithmetic or operation.transcendental)
        zeros = [self._zeros.hide(o) if hides else None for o in operands]
        plain = [z or self._pin(o, operation.name) for z, o in zip(zeros, operands, strict=True)]
        known = all(p.known for p in plain)
        if hides and arithmetic and not known:
            plain = [
                self._zeros.add(dtype, p) if p.known and self._zeros.may_become(o) else p
                for o, p in zip(operands, plain, strict=True)
            ]
        pin = self._dialect.pin
        if (
            pin
            and dtype.is_float
            and not entry.helper
            and operation.name not in ("add", "mul", "fma")
        ):
            # A compiler knows what x - x and x == x are, but for NaN.
            first, *rest = operands
            plain[1:] = [
                self._write_pin(pin, p, first.type) if o == first else p
                for o, p in zip(rest, plain[1:], strict=True)
            ]
        operator = _find_operator(_choose_text(entry, lanes)) if entry.compound else ""
        wide, mask = plain, 0
        if lanes > 1 or not operator:
            wide = [self._repeat(o, p) for o, p in zip(operands, plain, strict=True)]
        if lanes > 1 and all(isinstance(o, k.Broadcast) for o in operands):
            plain = [wide[0], *plain[1:]]  # Of scalars alone, infix text would be a scalar.
        if lanes > 1 and dtype is DataType.BOOL:
            mask = max(w.mask for w in wide)
            wide = plain = [self._convert_mask(w, mask, lanes) for w in wide]
        elif lanes > 1 and expression.type.dtype is DataType.BOOL and self._dialect.masks:
            mask = self._measure(dtype)
        inner = [p.beside(operator, is_first=n == 0) for n, p in enumerate(plain)]
        if operator:
            text = f" {operator} ".join(inner)
        else:
            places: dict[str, str | int] = {str(n): text for n, text in enumerate(inner)}
            places |= {
                letter: f"({self._type_name(dtype, lanes)})({w.text})" if w.promoted else w.text
                for letter, w in zip("abc", wide, strict=False)
            }
            text = self._fill(entry, places, dtype, lanes, dtype)
        pieces = ()
        if len(plain) == 2 and entry.compound and text.startswith(inner[0]):
            pieces = (inner[0], text[len(inner[0]) :].lstrip())
        return Text(text, entry.compound, mask, pieces, operator, known=known)

    def _choose_extreme(self, expression: k.Operate) -> k.Select | None:
        """Choice between a local and a literal that is their minimum or maximum; None for anything
        else. A local that is NaN stays, as does the first of two equal operands. Where a language
        lets compilers assume that nothing is NaN, a comparison alone would become an instruction
        that drops it, and so its bits are tested. LLVM 14 takes -0 for 0 in such a choice."""
        match expression.operation.name, expression.operands:
            case ("min" | "max" as name, (k.Local() as local, other)):
                wanted = "le" if name == "min" else "ge"
            case ("min" | "max" as name, (other, k.Local() as local)):
                wanted = "lt" if name == "min" else "gt"
            case _:
                return None
        literal = find_repeated(other)
        if not isinstance(literal, k.Literal) or math.isnan(literal.value):
            return None
        if literal.value == 0 and math.copysign(1, literal.value) < 0:
            return None
        nan = operate("isnan", local)
        entry, _ = self._quotients.find_operation(nan)
        if isinstance(entry, Unsupported) or entry.helper:
            stays = operate("or", operate(wanted, local, other), nan)
            return k.Select(stays, local, other, expression.type)
        leaves = operate({"le": "gt", "ge": "lt", "lt": "ge", "gt": "le"}[wanted], local, other)
        return k.Select(leaves, other, local, expression.type)

    def _spell_choice(self, expression: k.Select) -> Text:
        lanes = expression.type.lanes
        condition = self.spell(expression.condition)
        sides = expression.then, expression.otherwise
        then, otherwise = (
            self._zeros.hide_beside(side, other, known=condition.known)
            or self._repeat(side, self._pin(side))
            for side, other in (sides, sides[::-1])
        )
        mask, known = 0, condition.known and then.known and otherwise.known
        if lanes > 1 and expression.type.dtype is DataType.BOOL:
            mask = max(then.mask, otherwise.mask, condition.mask)
            then = self._convert_mask(then, mask, lanes)
            otherwise = self._convert_mask(otherwise, mask, lanes)
        if condition.mask:
            width = mask or self._measure(expression.type.dtype)
            condition = self._convert_mask(condition, width, lanes)
        syntax = self._dialect.syntax
        choice, is_infix = syntax.choice, syntax.is_infix
        if expression.condition.type.lanes > 1 and syntax.vector_choice is not None:
            choice, is_infix = syntax.vector_choice, False
        # Beside a comma, `<` and `>` may be taken for brackets.
        bare = not is_infix and expression.type.dtype is not DataType.BOOL
        c, a, b = (t.text if bare else t.inner for t in (condition, then, otherwise))
        pieces = tuple(piece.format(c=c, a=a, b=b) for piece in choice)
        promoted = lanes == 1 and expression.type.dtype in self._dialect.promoted
        text = " ".join(pieces)
        return Text(text, is_infix, mask, pieces, promoted=promoted, known=known)

    def _spell_shuffle(self, shuffle: k.Shuffle) -> Text:
        dtype, lanes = shuffle.type.dtype, shuffle.type.lanes
        entry = self._dialect.shuffles
        if isinstance(entry, Unsupported):
            raise InternalError(f"a shuffle reached the renderer: {entry.reason}")
        first, second = self.spell_vector(shuffle.first), self.spell_vector(shuffle.second)
        places: dict[str, str | int] = {
            "a": first.text,
            "b": second.text,
            "lanes": ", ".join(map(str, shuffle.lanes)),
        }
        text = self._fill(entry, places, dtype, lanes, dtype)
        cut = text.index(str(places["lanes"]))
        pieces = (text[:cut].rstrip(), text[cut:])
        return Text(text, pieces=pieces, known=first.known and second.known)

    def _spell_conversion(self, expression: k.Convert) -> Text:
        source, target = expression.operand.type.dtype, expression.type.dtype
        lanes = expression.type.lanes
        # A position is the integer of its width under another name.
        source = self._index_integer if source is DataType.INDEX else source
        target = self._index_integer if target is DataType.INDEX else target
        if source is target:
            return self.spell(expression.operand)
        return self._convert(self._pin(expression.operand), source, target, lanes)

    def _convert(self, operand: Text, source: DataType, target: DataType, lanes: int) -> Text:
        """Value converted to another type."""
        entry = self._dialect.conversions[source, target]
        if isinstance(entry, Unsupported):
            raise InternalError(f"unsupported conversion {source} to {target} reached the renderer")
        known = operand.known
        if operand.mask:
            operand = self._convert_mask(operand, target.bytes, lanes)
        places: dict[str, str | int] = {
            "0": operand.inner,
            "a": operand.text,
            "R": self._type_name(target, lanes),
        }
        is_mask = target is DataType.BOOL and lanes > 1 and self._dialect.masks
        mask = source.bytes if is_mask else 0
        text = self._fill(entry, places, source, lanes, source, target)
        is_known = known and (source.is_float or not target.is_float)
        made = Text(text, entry.compound, mask, known=is_known)
        return self._zeros.add(target, made) if known and not source.is_float else made

    def _place_element(self, array: str, index: k.Expression, lanes: int) -> dict[str, str | int]:
        width, lane = self._arrays[array].lanes, ""
        if width > 1:
            if width > lanes:
                lane = f"][{self.spell(self._find_lane(index, width)).text}"
            index, _ = self._divide_index(index, width)
        made = self.spell(index)
        at = self._spell_address(array, made)
        return {"p": self._names.spell(array), "i": made.text + lane, "at": at, "n": lanes}

    def _divide_index(self, index: k.Expression, width: int) -> tuple[k.Expression, k.Expression]:
        """Index divided by a number, rounded down, and a shorter sum with the same remainder.
        Multiples are divided separately where what is left is never negative."""
        if width == 1:
            return index, ZERO
        by, reaches = k.Literal(k.INDEX, width), self._quotients.reaches
        joins = {"add": add, "sub": subtract}
        match index:
            case k.Literal(value=value):
                whole, rest = divmod(int(value), width)
                return k.Literal(k.INDEX, whole), k.Literal(k.INDEX, rest)
            case k.Operate(operation=operation, operands=(left, k.Literal(value=value))) if (
                operation.name == "mul" and int(value) % width == 0
            ):
                return multiply(left, int(value) // width), ZERO
            case k.Operate(operation=operation, operands=operands) if operation.name in joins:
                (whole, near), (more, far) = (self._divide_index(o, width) for o in operands)
                joined = joins[operation.name]
                rest = joined(near, far)
                if rest in (near, far) and reaches.find(rest)[0] >= 0:
                    return joined(whole, more), rest
                return operate("div", index, by), rest
            case _ if is_within(reaches.find(index), width):
                return ZERO, index
            case _:
                return operate("div", index, by), index

    def _find_lane(self, index: k.Expression, width: int) -> k.Expression:
        """Remainder of an index."""
        _, rest = self._divide_index(index, width)
        low, high = self._quotients.reaches.find(rest)
        if is_within((low, high), width):
            return rest
        return operate("mod", index if low < 0 else rest, k.Literal(k.INDEX, width))

    def _spell_elements(self, load: k.LoadLocal) -> Text:
        """Vector of an array's elements, in a language that loads one at a time."""
        one = k.Type(load.type.dtype)
        places = (add(load.index, k.Literal(k.INDEX, lane)) for lane in range(load.type.lanes))
        elements = ", ".join(self.spell(k.LoadLocal(load.array, p, one)).text for p in places)
        name = self._type_name(load.type.dtype, load.type.lanes)
        return Text(self._dialect.syntax.lanes.format(T=name, a=elements))

    def _measure(self, dtype: DataType) -> int:
        """Size of a value in bytes."""
        return (self._index_integer if dtype is DataType.INDEX else dtype).bytes

    def _convert_mask(self, mask: Text, width: int, lanes: int) -> Text:
        if mask.mask == width:
            return mask
        name = self._type_name(SIGNED[width], lanes)
        return Text(f"convert_{name}({mask.text})", mask=width)

    # Tables -------------------------------------------------------------------------------

    def _type_name(self, dtype: DataType, lanes: int) -> str:
        name = self.index_type if dtype.kind is Kind.INDEX else self._dialect.types[dtype]
        return self._name_vector(name, lanes)

    def _name_vector(self, name: str, lanes: int) -> str:
        return self._dialect.syntax.vector.format(T=name, n=lanes) if lanes > 1 else name

    def _name_integer(self, dtype: DataType, lanes: int) -> str:
        """Name of the integer type of that size, or empty."""
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
        text = _choose_text(spelling, lanes)
        places = dict(places)
        if dtype is not DataType.INDEX and (dtype is not DataType.BOOL or lanes == 1):
            places["T"] = self._type_name(dtype, lanes)
            if dtype is not DataType.BOOL and "{U}" in text:
                places["U"] = self._type_name(UNSIGNED[dtype.bytes], lanes)
        helper = (spelling.vector_helper if lanes > 1 else None) or spelling.helper
        if isinstance(helper, Definition):
            places["H"] = self._use_function(helper, lanes)
        elif isinstance(helper, str) and "{H}" in text:
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
        """Name of a helper for a type, or for a conversion from it; its text is added to the
        file."""
        helpers = self._dialect.helpers
        type_name = self._type_name(dtype, lanes)
        exact = helpers.get(f"{key}_{type_name}") or helpers.get(f"{key}_x{lanes}")
        if lanes > 1 and self._dialect.maps_lanes and exact is None:
            return self._map_lanes(self._use_helper(key, dtype, 1, storage, result), lanes)
        helper = exact or helpers.get(key)
        if helper is None:
            raise InternalError(f"the templates of '{self._dialect.name}' have no function '{key}'")
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
        word = UNSIGNED if dtype.kind is Kind.UNSIGNED else SIGNED
        places |= {
            "H": name,
            "U": self._name_integer(UNSIGNED[dtype.bytes], lanes),
            "I": self._name_integer(SIGNED[dtype.bytes], lanes),
            "V": self._name_integer(UNSIGNED[max(4, dtype.bytes)], lanes),
            "W": self._name_integer(word[4], lanes),
            "S": stored if isinstance(stored, str) else "",
            "B": self._name_integer(UNSIGNED[storage.bytes], lanes),
        }
        if result is not None and result.is_integer:
            literal, limits = self._dialect.literal, np.iinfo(result.dtype)
            places |= {"LEAST": literal(result, limits.min), "MOST": literal(result, limits.max)}
            places |= {"LOW": literal(dtype, limits.min), "HIGH": literal(dtype, limits.max + 1)}
        self.helpers[name] = helper.text.substitute(places)
        return name

    def _map_lanes(self, name: str, lanes: int) -> str:
        """Name of a vector function that calls a scalar one per lane; its text is added to the
        file."""
        mapped = f"{name}_x{lanes}"
        if mapped not in self.helpers:
            dialect, (result, given) = self._dialect, _read_head(self.helpers[name], name)
            wide = [(self._name_vector(type_name, lanes), each) for type_name, each in given]
            syntax = dialect.syntax
            letters = [syntax.lane_prefix + letter for letter in syntax.lane_letters[:lanes]]
            calls = [
                f"{name}({', '.join(f'{each}.{lane}' for _, each in given)})" for lane in letters
            ]
            made = self._name_vector(result, lanes)
            whole = syntax.lanes.format(T=made, a=_SPLIT.join(calls))
            flat = f"    return {whole.replace(_SPLIT, ', ')};"
            broken = f"    return {whole.replace(_SPLIT, ',' + chr(10) + ' ' * 8)};"
            lines = [dialect.begin_function(made, mapped, wide)]
            lines += [flat if len(flat) <= 100 else broken, "}"]
            self.helpers[mapped] = "\n".join(lines)
        return mapped

    @abc.abstractmethod
    def _use_function(self, definition: Definition, lanes: int) -> str:
        """Name of a generated function; its text, and its helpers', are added to the file."""


def _read_head(text: str, name: str) -> tuple[str, list[tuple[str, str]]]:
    """Result type of a function, in C's or WGSL's syntax, and the type and name of each
    parameter."""
    found = re.search(rf"^(?:static )?(\w+) {name}\((.*)\)(?: -> (\w+) {{)?$", text, re.MULTILINE)
    if found is None:
        raise InternalError(f"the head of function {name} is not in its text")
    given = [re.split(r": | ", each.removeprefix("const ")) for each in found[2].split(", ")]
    if found[3] is not None:
        return found[3], [(type_name, parameter) for parameter, type_name in given]
    return found[1], [(type_name, parameter) for type_name, parameter in given]


def _list_parts(value: k.Expression, lanes: int) -> list[k.Expression]:
    """Vectors of `lanes` lanes that a vector is concatenated from."""
    if not isinstance(value, k.Join) or value.type.lanes == lanes:
        return [value]
    return [*_list_parts(value.low, lanes), *_list_parts(value.high, lanes)]


def _choose_text(spelling: Spelling, lanes: int) -> str:
    """Text of a spelling for this number of lanes."""
    if lanes == 4 and spelling.four is not None:
        return spelling.four
    return spelling.text if lanes == 1 or spelling.vector is None else spelling.vector


@functools.lru_cache(256)
def _find_operator(text: str) -> str:
    """Operator of infix text with just two operands; else empty."""
    found = _INFIX.fullmatch(text)
    return found[1] if found else ""


def _find_atomic(kernel: k.Kernel, dialect: Dialect) -> frozenset[str]:
    """Buffers with stores of single elements that share a word with others."""
    packed = {b.name for b in kernel.buffers if b.dtype in dialect.limits.packed_types}
    return frozenset(
        statement.buffer
        for statement in (walk_statements(kernel.body) if packed else ())
        if isinstance(statement, k.Store)
        and statement.buffer in packed
        and statement.value.type.lanes == 1
    )


def _find_stored(statements: Sequence[k.Statement]) -> frozenset[str]:
    """Locals that are stored, and used nowhere else."""
    stored: set[str] = set()
    taken: set[str] = set()
    for statement in walk_statements(statements):
        expressions = list_expressions(statement)
        if isinstance(statement, k.Store) and isinstance(statement.value, k.Local):
            stored.add(statement.value.name)
            expressions = (statement.index,)
        taken.update(e.name for x in expressions for e in walk(x) if isinstance(e, k.Local))
    return frozenset(stored - taken)


def _is_within(operand: k.Expression) -> bool:
    """Whether a shift is certainly by less than the number of bits, or a divisor is in the range in
    which every language's division is exact."""
    if not isinstance(operand, k.Literal):
        return False
    if operand.type.dtype.is_float:
        return 2.0**-126 <= abs(operand.value) <= 2.0**126
    return 0 <= operand.value < 8 * operand.type.dtype.bytes
