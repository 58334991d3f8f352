"""Spelling of the kernel IR in a dialect: statements as lines of text, and functions.

The dialect has the spellings, `expressions` spells expressions, and the template has the layout of
a file.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dmlc.codegen.dialect import FOUR, Dialect, MatrixForms
from dmlc.codegen.expressions import Expressions
from dmlc.codegen.names import Mangler
from dmlc.codegen.quotients import SIGNED
from dmlc.codegen.text import Text
from dmlc.codegen.trace import Definition
from dmlc.kernel import nodes as k
from dmlc.kernel.cleanup import clean_up
from dmlc.kernel.expand import is_near
from dmlc.kernel.precise import name_arithmetic
from dmlc.kernel.rewrite import list_expressions, walk, walk_statements
from dmlc.scalars import DataType
from dmlc.source import InternalError

_INDENT = "    "
_WIDTH = 100

PREFIX = "portable_"
"""Prefix of generated functions, since languages reserve `exp` and `log`."""
_ALIGNED = 1024
"""Size in bytes from which an array's alignment is stated: smaller ones become registers."""


class Speller(Expressions):
    """Speller of one kernel."""

    def spell_body(self) -> list[str]:
        """Lines of the kernel's body, indented once."""
        lines = [f"{_INDENT}{line}" for line in self._declare_matrices()]
        lines += self.spell_statements(self._kernel.body)
        zeros = [f"{_INDENT}{line}" for line in self._zeros.declare()]
        return [*zeros, "", *lines] if zeros else lines

    # Statements ---------------------------------------------------------------------------

    def spell_statements(self, statements: Sequence[k.Statement], depth: int = 1) -> list[str]:
        """Lines of statements, indented `depth` times."""
        lines: list[str] = []
        before: k.Statement | None = None
        for statement in statements:
            if lines and depth == 1 and isinstance(statement, k.For):
                lines.append("")
            made = self._spell_statement(statement, depth)
            if before is not None and _is_else(before, statement):
                lines[-1] += " else {"
                made = made[1:]
            lines += made
            before = statement
        return lines

    def _spell_statement(self, statement: k.Statement, depth: int) -> list[str]:
        indent = _INDENT * depth
        match statement:
            case k.Let(local=local, value=k.Load() as load) if self._holds_words(load):
                return [f"{indent}{self._spell_words(local, load)}"]
            case k.Let(local=local, value=value):
                made = self._spell_value(local, value)
                self._zeros.note(local, known=made.known)
                self._quotients.reaches.note(local, value)
                return self._spell_let(local, made, indent, self._dialect.syntax.local)
            case k.Variable(local=local, value=value):
                made = self._spell_value(local, value)
                self._zeros.note(local, known=False)
                self._quotients.reaches.note(local)
                return self._spell_let(local, made, indent, self._dialect.syntax.variable)
            case k.Assign():
                return self._spell_assignment(statement, indent)
            case k.StoreLocal():
                return break_line(f"{indent}{self._spell_put(statement)}", f"{indent}{_INDENT}")
            case k.Barrier():
                barriers = self._dialect.memory_barriers if statement.memory else ()
                return [f"{indent}{line}" for line in barriers or (self._dialect.barrier,)]
            case k.Store():
                lines = (f"{indent}{line}" for line in self._spell_store(statement).splitlines())
                return [part for line in lines for part in break_line(line, f"{indent}{_INDENT}")]
            case k.Prefetch():
                return [f"{indent}{self._spell_prefetch(statement)}"]
            case k.If(condition=condition, then=then):
                head = f"{indent}if ({self.spell(condition).text}) {{"
                return [head, *self.spell_statements(then, depth + 1), f"{indent}}}"]
            case k.For():
                dialect = self._dialect
                hint = dialect.unroll if statement.unroll else ""
                hint = dialect.unroll_registers if self._is_register_loop(statement) else hint
                hint = dialect.rolled if statement.rolled else hint
                head, first = self._spell_head(statement)
                beside = hint.endswith(" ")
                lines = [f"{indent}{hint}"] if hint and not beside else []
                lines.append(f"{indent}{hint if beside else ''}{head}")
                lines += [f"{indent}{_INDENT}{line}" for line in first]
                body = self.spell_statements(statement.body, depth + 1)
                return [*lines, *body, f"{indent}}}"]
            case k.InsertHalf():
                return [f"{indent}{self._spell_half(statement)}"]
            case k.StoreWord():
                place = f"{self._names.spell(statement.buffer)}[{self.spell(statement.index).text}]"
                return [f"{indent}{place} = {self._names.spell(statement.word.name)};"]
            case k.FillMatrix() | k.LoadMatrix() | k.StoreMatrix() | k.MultiplyMatrices():
                made = f"{indent}{self._spell_matrices(statement)}"
                return break_line(made, f"{indent}{_INDENT}")

    @property
    def _forms(self) -> MatrixForms:
        """Syntax of matrices."""
        if self._dialect.matrices is None:
            raise InternalError(f"target '{self._dialect.name}' has no matrices")
        return self._dialect.matrices

    def _declare_matrices(self) -> list[str]:
        """Declarations of matrices, after those they depend on."""
        made: list[str] = []
        for matrix in self._kernel.matrices:
            if self._forms.declarations:
                self.helpers.setdefault("Matrix", self._forms.declarations)
            name = self._names.spell(matrix.name)
            made.append(self._forms.declare.format(m=name, M=self._name_matrix(matrix)))
        return made

    def _name_matrix(self, matrix: k.Matrix) -> str:
        """Name of a matrix's type."""
        forms = self._forms
        return forms.type.format(
            S=self._dialect.storage[matrix.dtype],
            bits=8 * matrix.dtype.bytes,
            rows=matrix.rows,
            columns=matrix.columns,
            use=forms.uses[matrix.use],
        )

    def _spell_matrices(
        self, statement: k.FillMatrix | k.LoadMatrix | k.StoreMatrix | k.MultiplyMatrices
    ) -> str:
        forms, names = self._forms, self._names
        if isinstance(statement, k.MultiplyMatrices):
            left, right = names.spell(statement.left), names.spell(statement.right)
            return forms.multiply.format(m=names.spell(statement.sum), left=left, right=right)
        (matrix,) = [m for m in self._kernel.matrices if m.name == statement.matrix]
        places: dict[str, str | int] = {
            "m": names.spell(matrix.name),
            "M": self._name_matrix(matrix),
        }
        if isinstance(statement, k.FillMatrix):
            value = self.spell(statement.value).text
            if matrix.dtype.is_storage_only:
                value = f"({self._dialect.storage[matrix.dtype]})({value})"
            return forms.fill.format(a=value, **places)
        name, held = statement.array, self._arrays.get(statement.array)
        pointer = names.spell(name)
        if held is None:
            held = self._buffers[name]
            element = self._spell_element(name, statement.index, held.lanes)
            place = element.removeprefix(f"{pointer}[").removesuffix("]")
        else:
            place = self._place_element(name, statement.index, held.lanes)["i"]
            element = f"{pointer}[{place}]"
        stride = statement.stride // held.lanes
        places |= {"e": element, "p": pointer, "i": place, "stride": stride}
        if isinstance(statement, k.StoreMatrix):
            return forms.store.format(**places)
        return forms.load.format(layout=forms.layouts[statement.transposed], **places)

    def _holds_words(self, load: k.Load) -> bool:
        """Whether a load keeps raw words, since the language lacks vectors of that length."""
        buffer = self._buffers[load.buffer]
        is_packed = buffer.dtype in self._dialect.of_buffer(buffer).packs
        return is_packed and load.type.lanes > FOUR

    def _spell_words(self, local: k.Local, load: k.Load) -> str:
        buffer = self._buffers[load.buffer]
        self._words[local.name] = buffer
        name, element = self._names.spell(local.name), self.name_element(load.buffer)
        form = self._dialect.syntax.local
        declaration = self._dialect.declare(form, name, element, DataType.UINT32)
        return f"{declaration} = {self._spell_element(load.buffer, load.index, load.type.lanes)};"

    def _spell_head(self, loop: k.For) -> tuple[str, list[str]]:
        """First line of a loop, and the first statements of its body."""
        syntax, name = self._dialect.syntax, self._names.spell(loop.variable.name)
        begin, stop = self.spell(loop.start), self.spell(loop.stop)
        self._zeros.note(loop.variable, known=begin.known)
        self._quotients.reaches.note_turns(loop)
        if loop.backwards:
            condition = syntax.countdown.format(i=name, start=begin.beside(">", is_first=False))
            first = [syntax.countdown_body.format(i=name)] if syntax.countdown_body else []
            return f"for ({self._count(name, stop.text)}; {condition}) {{", first
        step = syntax.increment.format(i=name) if loop.step == 1 else f"{name} += {loop.step}"
        counted = loop.step == 1 and isinstance(loop.stop, k.Literal)
        until = self._dialect.until if counted and self._is_register_loop(loop) else "<"
        condition = f"{name} {until} {stop.beside('<', is_first=False)}"
        return f"for ({self._count(name, begin.text)}; {condition}; {step}) {{", []

    def _is_register_loop(self, loop: k.For) -> bool:
        """Whether a loop to be unrolled accesses arrays only."""
        return is_near(loop, [a.name for a in self._arrays.values() if a.registers])

    def _count(self, name: str, start: str) -> str:
        """Declaration of a loop's counter."""
        return self._dialect.syntax.counter.format(T=self.index_type, i=name, start=start)

    def declare_arrays(self, indent: str) -> list[str]:
        """Declarations of the arrays of a work item: one of all register arrays of a type where the
        language has such."""
        made: dict[str, str] = {}
        for array in self._kernel.arrays:
            if not array.shared:
                line, name = self.spell_array(array), self._names.spell(array.name)
                joins = array.registers and self._dialect.syntax.array.startswith("{T} {x}")
                key = line[: line.index(f" {name}[") + 1] if joins else line
                made[key] = f"{made[key][:-1]}, {line[len(key) :]}" if key in made else line
        lines = (f"{indent}{line}" for line in made.values())
        return [part for line in lines for part in break_line(line, indent + _INDENT)]

    def spell_array(self, array: k.Array) -> str:
        """Declaration of an array, if the language declares its kind inside the kernel."""
        self.dtypes[array.dtype] = None
        syntax, name = self._dialect.syntax, self._names.spell(array.name)
        form = syntax.shared_array if array.shared else syntax.array
        name_of_type = self._name_stored(array.dtype, array.lanes)
        if array.registers and array.dtype.is_float:
            name_of_type = syntax.precise + name_of_type
        size, lanes = self._measure(array.dtype), self._array_lanes.get(array.name, 1)
        aligned = ""
        if lanes > array.lanes and array.size * size >= _ALIGNED:
            aligned = syntax.aligned.format(b=lanes * size)
        return form.format(T=name_of_type, x=name, n=array.size // array.lanes, aligned=aligned)

    def _name_stored(self, dtype: DataType, lanes: int) -> str:
        """Element type of an array, in storage."""
        stored = self._dialect.storage[dtype] if dtype.is_storage_only else None
        is_named = isinstance(stored, str)
        return self._name_vector(stored, lanes) if is_named else self._type_name(dtype, lanes)

    @functools.cached_property
    def _array_lanes(self) -> Mapping[str, int]:
        """Lanes of the widest vectors loaded from and stored to each array."""
        found: dict[str, int] = {}
        for statement in walk_statements(self._kernel.body):
            for part in itertools.chain.from_iterable(map(walk, list_expressions(statement))):
                if isinstance(part, k.LoadLocal):
                    found[part.array] = max(found.get(part.array, 1), part.type.lanes)
            if isinstance(statement, k.StoreLocal):
                lanes = statement.value.type.lanes
                found[statement.array] = max(found.get(statement.array, 1), lanes)
        return found

    def _spell_assignment(self, statement: k.Assign, indent: str) -> list[str]:
        name, value = self._names.spell(statement.local.name), statement.value
        made = self._repeat(value, self._zeros.hide(value) or self.spell(value))
        if value.type.dtype.is_float and _adds(statement):
            return [f"{indent}{name} += {made.text.removeprefix(f'{name} + ')};"]
        return [f"{indent}{name} = {made.text};"]

    def _spell_put(self, put: k.StoreLocal) -> str:
        lanes = put.value.type.lanes
        if lanes == self._arrays[put.array].lanes:
            lanes = 1
        places = self._place_element(put.array, put.index, put.value.type.lanes)
        hidden = self._zeros.hide(put.value) if self._arrays[put.array].registers else None
        value = self._repeat(put.value, hidden or self._pin(put.value))
        places["a"], stored = value.text, self._arrays[put.array].dtype
        if stored.is_storage_only:
            spelling = self._dialect.elements
            element = self._fill(spelling, dict(places), DataType.INDEX, lanes, DataType.INDEX)
            named = self._name_stored(stored, put.value.type.lanes)
            places |= {"e": element, "0": value.inner, "S": named}
            stores = self._dialect.stores[stored]
            return self._fill(stores, places, stored.compute, put.value.type.lanes, stored)
        return self._fill(self._dialect.puts, places, DataType.INDEX, lanes, DataType.INDEX)

    def _spell_value(self, local: k.Local, value: k.Expression) -> Text:
        """Initial value of a local."""
        # The initial value of a variable is a term of a sum after unrolling.
        made = self._zeros.hide(value)
        return made or (self.spell(value) if local.name in self._stored else self._pin(value))

    def _spell_let(
        self,
        local: k.Local,
        made: Text,
        indent: str,
        form: str,
    ) -> list[str]:
        if made.mask:
            self._masks[local.name] = made.mask
            type_name = self._type_name(SIGNED[made.mask], local.type.lanes)
        else:
            # An earlier local of that name, out of scope now, may have been a mask.
            self._masks.pop(local.name, None)
            type_name = self._type_name(local.type.dtype, local.type.lanes)
        name, dtype = self._names.spell(local.name), local.type.dtype
        declaration = self._dialect.declare(form, name, type_name, dtype)
        head = f"{indent}{declaration} ="
        line = f"{head} {made.text};"
        if len(line) <= _WIDTH or not made.pieces:
            return break_line(line, indent + _INDENT)
        first, *rest = made.pieces
        rest[-1] += ";"
        lines = [f"{head} {first}", *(f"{indent}{_INDENT}{piece}" for piece in rest)]
        is_short = all(len(each) <= _WIDTH for each in lines)
        return lines if is_short else break_line(line, indent + _INDENT)

    def _spell_store(self, store: k.Store) -> str:
        buffer = self._buffers[store.buffer]
        lanes = store.value.type.lanes
        dialect = self._dialect.of_buffer(buffer)
        packs = lanes > 1 and buffer.dtype in dialect.packs
        value = self._pack(store.value, buffer) if packs else self.spell_vector(store.value)
        if value.mask:
            value = self._convert_mask(value, 1, lanes)
        index = self._spell_index(store.index)
        stored = dialect.storage[buffer.dtype]
        places = {
            "p": self._names.spell(store.buffer),
            "i": index.inner,
            "j": index.text,
            "at": self._spell_address(store.buffer, index),
            "n": lanes,
            "e": self._spell_element(store.buffer, store.index, lanes),
            "h": self._spell_shift(store.buffer, store.index).inner,
            "S": self._name_vector(stored, lanes) if isinstance(stored, str) else "",
            "a": value.text,
            "0": value.inner,
        }
        spelling = dialect.stores[buffer.dtype]
        if store.streaming is not None and buffer.dtype in self._dialect.streaming:
            spelling = self._dialect.streaming[buffer.dtype]
            places["f"] = self.spell(store.streaming).text
        if dialect.atomics is not None and lanes > 1 and store.buffer in self._atomic:
            spelling = dataclasses.replace(spelling, vector=dialect.atomics.store)
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

    def _spell_half(self, put: k.InsertHalf) -> str:
        dtype = self._buffers[put.buffer].dtype
        value = self.spell(put.value)
        places: dict[str, str | int] = {
            "w": self._names.spell(put.word.name),
            "h": self.spell(put.half).inner,
            "a": value.text,
            "0": value.inner,
        }
        return self._fill(self._dialect.halves[dtype], places, dtype.compute, 1, dtype)

    def _use_function(self, definition: Definition, lanes: int) -> str:
        needed = spell_function(self._dialect, definition)
        self.helpers |= {name: text for name, text in needed.items() if name not in self.helpers}
        name = PREFIX + definition.name
        return self._map_lanes(name, lanes) if lanes > 1 else name


@functools.cache
def prepare_function(dialect: Dialect, definition: Definition) -> k.Kernel:
    """Body of a function after the passes of its dialect."""
    return clean_up(name_arithmetic(definition.function().as_kernel(), dialect.limits.precise))


@functools.cache
def spell_function(dialect: Dialect, definition: Definition) -> Mapping[str, str]:
    """Texts of a function and, before it, of the helpers that it needs, by name."""
    function, kernel = definition.function(), prepare_function(dialect, definition)
    mangler = Mangler(dialect.reserved)
    # Only kernels have hidden zeros, and a parameter is no argument of the kernel.
    plain = dataclasses.replace(dialect, zeros=MappingProxyType({}), scalar="{x}")
    speller = Speller(plain, kernel, mangler, hexadecimal=True)
    body = speller.spell_body()
    given = [(dialect.types[p.type.dtype], mangler.spell(p.name)) for p in function.parameters]
    result = dialect.types[function.result.type.dtype]
    name = PREFIX + definition.name
    lines = [f"// {line}".rstrip() for line in function.note]
    lines += [dialect.begin_function(result, name, given), *body]
    lines += [f"{_INDENT}return {mangler.spell('result')};", "}"]
    return {**speller.helpers, name: "\n".join(lines)}


def _is_else(before: k.Statement, after: k.Statement) -> bool:
    """Whether the second of two statements is the else branch of the first one, whose condition has
    a name."""
    match before, after:
        case k.If(condition=k.Local() as first), k.If(condition=k.Operate() as second):
            return second.operation.name == "not" and second.operands == (first,)
        case _:
            return False


def _adds(statement: k.Assign) -> bool:
    """Whether an assignment adds to its variable."""
    value = statement.value
    return (
        isinstance(value, k.Operate)
        and value.operation.name == "add"
        and value.operands[0] == statement.local
    )


def break_line(line: str, indent: str) -> list[str]:
    """A statement on few lines of 100 columns at most, those after the first with an indent: broken
    where it is nested least, and there as late as that allows; within an index only where nothing
    else does. One that has no such place is left as it is."""
    return list(choose_breaks(line, indent)[1])


@functools.lru_cache(1024)
def choose_breaks(line: str, indent: str) -> tuple[tuple[int, int, int], tuple[str, ...]]:
    """Lines of a statement, and their cost: those that are too long, the breaks within indices, and
    their number. Cached, as several breaks leave the same rest."""
    best = (int(len(line) > _WIDTH), 0, 1), (line,)
    if len(line) <= _WIDTH:
        return best
    depth, templates, begin = 0, 0, len(line) - len(line.lstrip())
    found: dict[int, int] = {}
    for match in _BREAKS.finditer(line, begin):
        if match.start() > _WIDTH + 1:
            break  # What ends here or later is too long for a line.
        text = match[0]
        if text == "<" or (text == ">" and templates):
            templates += 1 if text == "<" else -1
        depth += (text in "([{") - (text in ")]}") + _INSIDE * ((text == "[") - (text == "]"))
        place = match.start() if text[0] == " " and text != " = " else match.end()
        rank = 2 * depth + _INSIDE * (text in (" = ", "(")) + (text != ", ")
        is_place = text[0] in ", (" and not templates
        if is_place and len(line[:place].rstrip()) <= _WIDTH:
            found[rank] = place
    for rank, place in sorted(found.items()):
        within = int(rank >= 2 * _INSIDE)
        # No line holds more than its width, and the blank at which it is broken.
        least = -(-(len(line) - place - 1) // (_WIDTH - len(indent) + 1))
        if (0, within, 1 + least) >= best[0]:
            continue
        (long, inside, count), rest = choose_breaks(f"{indent}{line[place:].lstrip()}", indent)
        cost = long, inside + within, count + 1
        if cost < best[0]:
            best = cost, (line[:place].rstrip(), *rest)
    return best


_INSIDE = 16
"""How much deeper a position is nested than what is called: it stays on one line if it can."""
_BREAKS = re.compile(r"[()\[\]{}>]|(?<=\w)<(?=\w)|, | (?:[-+*/%&|?:=]|&&|\|\||<<|>>) ")
"""Brackets, and where a line may be broken: after a comma, or before an operator; else after what
is assigned to, or where a call begins."""
