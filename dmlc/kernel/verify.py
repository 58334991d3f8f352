"""Verifier of the kernel IR: types, scopes, access rights, uniform barriers, and indices that
`bounds` proves to be out of bounds.

It runs after every step that makes or changes a kernel. Faults that need values, such as races and
data-dependent indices, are left to `interpret`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn

from dmlc.kernel import nodes as k
from dmlc.kernel.bounds import find_outside
from dmlc.kernel.print import print_statement, show_type
from dmlc.kernel.registers import find_turned
from dmlc.kernel.rewrite import NUMBER, list_expressions, list_operands, walk_statements
from dmlc.scalars import DataType, integer_limits, is_float32
from dmlc.source import InternalError


def verify_kernel(
    kernel: k.Kernel,
    step: str,
    sizes: Mapping[str, int] = MappingProxyType({}),
    *,
    is_named: bool = True,
) -> None:
    """Raises `InternalError`, naming the step, if a kernel breaks a rule. Buffers have `sizes`
    elements. Without `is_named`, before names are final, locals may hide each other, and bounds are
    not checked."""
    _Verifier(kernel, step, is_named).run(sizes)


_ITEM = f"{NUMBER}item"
"""Stands among names of locals for the number of the work item."""


class _Verifier:
    def __init__(self, kernel: k.Kernel, step: str, is_named: bool) -> None:
        self._is_named = is_named
        self._kernel = kernel
        self._step = step
        self._buffers = {b.name: b for b in kernel.buffers}
        self._arrays = {a.name: a for a in kernel.arrays}
        self._scalars = {s.name: s.type for s, _ in kernel.scalars}
        self._matrices = {m.name: m for m in kernel.matrices}
        self._declared = {*self._buffers, *self._arrays, *self._scalars, *self._matrices}
        self._known: dict[str, k.Type] = {}
        """Types of the visible locals."""
        self._variables: set[str] = set()
        """Visible locals that may be assigned."""
        self._sources: set[str] = set()
        """Dependencies of the current statement's expressions: locals, and `_ITEM`."""
        self._depends: dict[int, set[str]] = {}
        """Dependencies of each statement, by its identity."""
        self._varying: set[str] = {_ITEM}
        """Names whose values may differ between the items of a group."""
        self._assigned: set[str] = set()
        """Locals that are assigned more than once."""
        self._statement: k.Statement | None = None

    def run(self, sizes: Mapping[str, int]) -> None:
        kernel = self._kernel
        declared = len(kernel.buffers) + len(kernel.arrays) + len(kernel.scalars)
        if len(self._declared) != declared + len(kernel.matrices):
            self._fail("two of its buffers, arrays, scalars and matrices have one name")
        launch = kernel.launch
        if launch.subgroup < 0 or (launch.subgroup and launch.group_size % launch.subgroup):
            self._fail(f"groups are no whole number of subgroups: {launch}")
        for matrix in kernel.matrices:
            if not launch.subgroup or matrix.size % launch.subgroup:
                self._fail(f"the items of a subgroup do not share matrix '{matrix.name}' evenly")
        if min(launch.per_group, launch.group_size, launch.row or 1) < 1:
            self._fail(f"it cannot be launched: {launch}")
        for array in kernel.arrays:
            if array.size < 1 or array.size % array.lanes:
                self._fail(f"array '{array.name}' has {array.size} elements")
            if array.registers and self._is_named and array.name not in find_turned(kernel):
                self._fail(f"array '{array.name}' has not become registers")
        self._check_statements(kernel.body)
        each = walk_statements(kernel.body)
        waits = kernel.matrices or any(isinstance(s, k.Barrier) for s in each)
        before: tuple[set[str], set[str]] | None = None
        while launch.group_size > 1 and waits and before != (self._varying, self._assigned):
            # An assignment later in a loop affects reads earlier in it.
            before = set(self._varying), set(self._assigned)
            self._note_varying(kernel.body, varies=False)
        if not self._is_named:
            return
        arrays = {a.name: a.size for a in kernel.arrays}
        for statement, why in find_outside(kernel, {**sizes, **arrays}):
            self._statement = statement
            self._fail(why)

    # What differs between items ------------------------------------------------------------

    def _note_varying(self, statements: Sequence[k.Statement], *, varies: bool) -> None:
        """Records locals that may differ between items, and fails at a barrier under divergent
        control flow."""
        for statement in statements:
            match statement:
                case k.Let(local=local):
                    if self._varies(statement):
                        self._varying.add(local.name)
                    elif local.name not in self._assigned:
                        # A local of the same name in another scope may differ.
                        self._varying.discard(local.name)
                case k.Variable(local=local):
                    self._assigned.add(local.name)
                    if self._varies(statement):
                        self._varying.add(local.name)
                case k.Assign(local=local):
                    if varies or self._varies(statement):
                        self._varying.add(local.name)
                case k.InsertHalf(word=word):
                    self._varying.add(word.name)
                case k.For(variable=variable, body=body):
                    self._assigned.add(variable.name)
                    inside = varies or self._varies(statement)
                    if inside:
                        self._varying.add(variable.name)
                    self._note_varying(body, varies=inside)
                case k.If(then=then):
                    self._note_varying(then, varies=varies or self._varies(statement))
                case k.Barrier(memory=memory):
                    if memory and self._kernel.launch.count != 1:
                        self._statement = statement
                        self._fail("only the items of one group see what each has stored")
                    if varies:
                        self._statement = statement
                        self._fail("a barrier stands where items of a group go different ways")
                case k.FillMatrix() | k.LoadMatrix() | k.StoreMatrix() | k.MultiplyMatrices():
                    if varies:
                        self._statement = statement
                        self._fail("a matrix is used where items of a group go different ways")
                case k.StoreLocal() | k.Store() | k.StoreWord() | k.Prefetch():
                    pass

    def _varies(self, statement: k.Statement) -> bool:
        """Whether a statement's expressions may differ between items of a group."""
        return not self._depends[id(statement)].isdisjoint(self._varying)

    # Statements ---------------------------------------------------------------------------

    def _check_statements(self, statements: Sequence[k.Statement]) -> None:
        outside = dict(self._known)
        for statement in statements:
            self._statement = statement
            self._depends[id(statement)] = self._sources = set()
            for expression in list_expressions(statement):
                self._check(expression)
            self._check_statement(statement)
        self._known = outside

    def _check_statement(self, statement: k.Statement) -> None:
        match statement:
            case k.Let(local=local, value=value) | k.Variable(local=local, value=value):
                self._expect(value, local.type)
                self._define(local, assignable=isinstance(statement, k.Variable))
            case k.Assign(local=local, value=value):
                if local.name not in self._variables:
                    self._fail(f"'{local.name}' is assigned, and is no variable")
                self._expect(value, local.type)
            case k.StoreLocal(array=array, index=index, value=value):
                self._expect(index, k.INDEX)
                held = self._array(array)
                self._expect(value, k.Type(held.dtype.compute, value.type.lanes))
                self._check_whole(held, value.type, 1 if held.shared else held.lanes)
            case k.Store(buffer=buffer, index=index, value=value, streaming=streaming):
                self._expect(index, k.INDEX)
                stored = self._buffer(buffer, written=True)
                self._expect(value, k.Type(stored.dtype.compute, value.type.lanes))
                self._check_whole(stored, value.type, 1)
                if streaming is not None:
                    self._expect(streaming, k.BOOL)
            case k.Prefetch(buffer=buffer, index=index):
                self._buffer(buffer, written=False)
                self._expect(index, k.INDEX)
            case k.InsertHalf(word=word, buffer=buffer, half=half, value=value):
                stored = self._buffer(buffer, written=True)
                if stored.dtype.bytes != 2 or word.name not in self._variables:
                    self._fail("half a word is put where no word is made")
                self._expect(half, k.INDEX)
                self._expect(value, k.Type(stored.dtype.compute))
            case k.StoreWord(buffer=buffer, index=index, word=word):
                if self._buffer(buffer, written=True).dtype.bytes != 2:
                    self._fail(f"'{buffer}' does not hold two elements to a word")
                self._expect(index, k.INDEX)
                self._expect(word, k.Type(DataType.UINT32))
            case k.Barrier():
                pass
            case k.FillMatrix(matrix=matrix, value=value):
                self._expect(value, k.Type(self._matrix(matrix).dtype.compute))
            case k.LoadMatrix(array=array) | k.StoreMatrix(array=array):
                self._expect(statement.index, k.INDEX)
                self._check_rows(statement)
            case k.MultiplyMatrices(sum=total, left=left, right=right):
                a, b, c = map(self._matrix, (left, right, total))
                uses = (a.use, b.use, c.use) == (k.Use.LEFT, k.Use.RIGHT, k.Use.SUM)
                fits = (a.rows, a.columns, b.columns) == (c.rows, b.rows, c.columns)
                if not uses or not fits or a.dtype is not b.dtype:
                    self._fail("these matrices are not multiplied")
            case k.If(condition=condition, then=then):
                self._expect(condition, k.BOOL)
                self._check_statements(then)
            case k.For(variable=variable, start=start, stop=stop, body=body):
                self._expect(start, k.INDEX)
                self._expect(stop, k.INDEX)
                if statement.step < 1 or (statement.backwards and statement.step != 1):
                    self._fail(f"a loop steps by {statement.step}")
                if variable.type != k.INDEX:
                    self._fail(f"a loop counts in {show_type(variable.type)}")
                outside = dict(self._known)
                self._define(variable, assignable=False)
                self._check_statements(body)
                self._known = outside

    def _check_rows(self, statement: k.LoadMatrix | k.StoreMatrix) -> None:
        """Checks that a matrix fits the memory that holds its rows."""
        name, matrix = statement.array, self._matrix(statement.matrix)
        is_store = isinstance(statement, k.StoreMatrix)
        is_array = name in self._arrays
        held = self._array(name) if is_array else self._buffer(name, written=is_store)
        if isinstance(held, k.Array) and not held.shared:
            self._fail(f"the items of a subgroup do not share '{name}'")
        if held.dtype is not matrix.dtype or matrix.align(statement) % held.lanes:
            self._fail(f"'{name}' holds no {matrix.dtype.short} of a matrix")
        _, length = matrix.lay(statement)
        if statement.stride < length or statement.stride % matrix.align(statement):
            self._fail("rows of a matrix lie in each other, or do not begin evenly")

    def _matrix(self, name: str) -> k.Matrix:
        if name not in self._matrices:
            self._fail(f"there is no matrix '{name}'")
        return self._matrices[name]

    def _define(self, local: k.Local, *, assignable: bool) -> None:
        hidden = self._is_named and local.name in self._known
        if hidden or local.name in self._declared:
            self._fail(f"'{local.name}' is defined where another of that name is in sight")
        self._known[local.name] = local.type
        (self._variables.add if assignable else self._variables.discard)(local.name)

    def _buffer(self, name: str, *, written: bool) -> k.Buffer:
        if name not in self._buffers:
            self._fail(f"there is no buffer '{name}'")
        buffer = self._buffers[name]
        if buffer.access is (k.Access.READ if written else k.Access.WRITE):
            self._fail(f"'{name}' is not for {'writing' if written else 'reading'}")
        return buffer

    def _check_whole(self, memory: k.Buffer | k.Array, type: k.Type, part: int) -> None:
        """Checks that an access moves a whole vector, or `part` lanes."""
        if memory.lanes > 1 and type.lanes not in (memory.lanes, part):
            whole = show_type(k.Type(memory.dtype, memory.lanes))
            self._fail(f"'{memory.name}' holds {whole}, and {type.lanes} elements are taken")

    def _array(self, name: str) -> k.Array:
        if name not in self._arrays:
            self._fail(f"there is no array '{name}'")
        return self._arrays[name]

    # Expressions --------------------------------------------------------------------------

    def _check(self, expression: k.Expression) -> None:
        for operand in list_operands(expression):
            self._check(operand)
        made = expression.type
        match expression:  # The most common cases come first.
            case k.Operate(operation=operation, operands=operands):
                first = operands[0].type
                for operand in operands[1:]:
                    self._expect(operand, first)
                if len(operands) != operation.arity or not operation.operands.accept(first.dtype):
                    self._fail(f"{operation.name} of {len(operands)} {show_type(first)}")
                self._agree(expression, operation.result_type(first.dtype), first.lanes)
            case k.Local(name=name):
                self._sources.add(name)
                known = self._known.get(name)
                if known is not made and known != made:
                    self._fail(f"'{name}' is no {show_type(made)} in sight")
            case k.Scalar(name=name):
                if self._scalars.get(name) != made:
                    self._fail(f"the kernel is given no {show_type(made)} '{name}'")
            case k.Literal(value=value):
                self._check_literal(made.dtype, value)
            case k.Position(geometry=geometry):
                if geometry is not k.Geometry.GROUP:
                    self._sources.add(_ITEM)
                self._agree(expression, DataType.INDEX)
            case k.Lead(buffer=buffer):
                if buffer not in self._buffers:
                    self._fail(f"there is no buffer '{buffer}'")
                self._agree(expression, DataType.INDEX)
            case k.Load(buffer=buffer, index=index):
                self._expect(index, k.INDEX)
                read = self._buffer(buffer, written=False)
                if read.access is not k.Access.READ:
                    self._sources.add(_ITEM)  # Another item may have written it by now.
                self._agree(expression, read.dtype.compute, made.lanes)
                self._check_whole(read, made, 1)
            case k.LoadLocal(array=name, index=index):
                self._expect(index, k.INDEX)
                array = self._array(name)
                if not array.shared:
                    self._sources.add(_ITEM)
                self._agree(expression, array.dtype.compute, made.lanes)
                self._check_whole(array, made, 1 if array.registers else array.lanes)
            case k.Select(condition=condition, then=then, otherwise=otherwise):
                self._expect(then, made)
                self._expect(otherwise, made)
                if condition.type not in (k.BOOL, k.Type(DataType.BOOL, made.lanes)):
                    self._fail(f"a choice between {show_type(made)} by {show_type(condition.type)}")
            case k.Convert(operand=operand):
                self._expect(operand, k.Type(operand.type.dtype, made.lanes))
            case k.Reinterpret(operand=operand):
                self._expect(operand, k.Type(operand.type.dtype, made.lanes))
                if operand.type.dtype.bytes != made.dtype.bytes:
                    self._fail(f"the bits of {show_type(operand.type)} are no {show_type(made)}")
            case k.Broadcast(operand=operand):
                self._expect(operand, k.Type(made.dtype))
            case k.Join(low=low, high=high):
                self._expect(low, k.Type(made.dtype, made.lanes // 2))
                self._expect(high, low.type)
            case k.Numbers(values=values):
                if len(values) != made.lanes:
                    self._fail(f"{len(values)} numbers in {show_type(made)}")
                for value in values:
                    self._check_literal(made.dtype, value)
            case k.Extract(operand=operand, lanes=lanes):
                self._agree(expression, operand.type.dtype, len(lanes))
                if not lanes or not all(0 <= lane < operand.type.lanes for lane in lanes):
                    self._fail(f"lanes {lanes} of {show_type(operand.type)}")
            case k.Shuffle(first=first, second=second, lanes=lanes):
                self._expect(second, first.type)
                self._agree(expression, first.type.dtype, len(lanes))
                if not all(0 <= lane < 2 * first.type.lanes for lane in lanes):
                    self._fail(f"a shuffle of lanes {lanes} of two {show_type(first.type)}")

    def _check_literal(self, dtype: DataType, value: bool | int | float) -> None:
        # Output languages differ in rounding a literal that is no f32.
        if dtype is DataType.FLOAT32 and not is_float32(value):
            self._fail(f"{value} is no f32")
        if dtype.is_float or dtype is DataType.BOOL:
            return
        is_index = dtype is DataType.INDEX
        least, most = self._kernel.index_limits if is_index else integer_limits(dtype)
        if not isinstance(value, int) or not least <= value <= most:
            self._fail(f"{value} is no {dtype.short}")

    def _expect(self, expression: k.Expression, type: k.Type) -> None:
        """Checks the type of an expression."""
        if expression.type is not type and expression.type != type:
            self._fail(f"{show_type(expression.type)} stands where {show_type(type)} must")

    def _agree(self, expression: k.Expression, dtype: DataType, lanes: int = 1) -> None:
        """Checks that an expression's declared type is the one that its operands imply."""
        own = expression.type
        if own.dtype is not dtype or own.lanes != lanes:
            made = show_type(k.Type(dtype, lanes))
            self._fail(f"a value of {made} calls itself {show_type(own)}")

    def _fail(self, what: str) -> NoReturn:
        raise InternalError(
            f"broken kernel after {self._step}: '{self._kernel.name}': {what}\n"
            f"  in {self._statement and print_statement(self._statement)}"
        )
