"""Equal groups of a program, of which one is lowered for all.

Blocks of a network repeat: their groups differ in the names of their tensors alone. Such groups
have one *form*, a function of the group's stages with numbers for names. Its kernels are those of
each group, once they have its names.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from dmlc.ir import (
    Body,
    Extent,
    Function,
    Load,
    Parameter,
    Result,
    Stage,
    Table,
    Tensor,
    value_type,
)
from dmlc.ir.index import find_index_only
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.names import split_words
from dmlc.kernel.nodes import Kernel, Type
from dmlc.loops.sections import NONE, Sections
from dmlc.scalars import Operation
from dmlc.source import DmlcError
from dmlc.transform.fuse import Group

_MARK = "$"
"""Delimits the names of a form's tensors; no other name has it."""
_NUMBERED = re.compile(r"\$[xX]\d+\$")

Lower: TypeAlias = Callable[[Function, Group, Sections], tuple[Kernel, ...]]
"""Lowers a group of a function, with user schedules."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """A group with numbers for the names of its tensors."""

    function: Function
    """The stages of the group. Tensors of other groups are its parameters."""
    group: Group


class Alike:
    """Lowering of the groups of a function that lowers equal ones once."""

    def __init__(
        self, function: Function, groups: Sequence[Group], lower: Lower, own: Sections
    ) -> None:
        self._function, self._lower, self._own = function, lower, own
        self._made: dict[_Form, tuple[Kernel, ...]] = {}
        # Kernels for run-time sizes, and of a step of a loop, have names from around the group.
        is_plain = not (
            function.symbols() or function.one_step or own.named or own.seen is not None
        )
        outlines = {id(group): self._outline(group) for group in groups if is_plain}
        repeated = Counter(outlines.values())
        self._repeated = {key for key, outline in outlines.items() if repeated[outline] > 1}

    def lower(self, group: Group) -> tuple[Kernel, ...]:
        """Kernels of a group, as if it was lowered alone. Raises as that does."""
        found = self._number(group) if id(group) in self._repeated else None
        made = None if found is None else self._lower_form(*found)
        return self._lower(self._function, group, self._own) if made is None else made

    def _lower_form(self, form: _Form, names: Mapping[str, str]) -> tuple[Kernel, ...] | None:
        """Kernels of a group, from those of its form; None if they have to be made for it."""
        if form not in self._made:
            try:
                self._made[form] = self._lower(form.function, form.group, NONE)
            except DmlcError:
                # The group's own names belong into the message.
                return None
        renaming, found = _Renaming(names), list[Kernel]()
        for kernel in self._made[form]:
            renamed = renaming.rename(kernel)
            if renamed is None:
                return None
            lines = (
                describe_stage(self._function, name)
                + line.removeprefix(describe_stage(form.function, number))
                for line, number, name in zip(
                    kernel.summary, kernel.stages, renamed.stages, strict=True
                )
            )
            found.append(self._own.rename(dataclasses.replace(renamed, summary=tuple(lines))))
        return tuple(found)

    def _outline(self, group: Group) -> Hashable:
        """Key that equal groups share, and few others do."""
        stages = (self._function.stage(name) for name in group.stages)
        return tuple((s.dtype, s.sizes, len(s.body.instructions)) for s in stages if s is not None)

    def _number(self, group: Group) -> tuple[_Form, Mapping[str, str]] | None:
        """Form of a group, with the names that its numbers stand for; None if it has none."""
        function, own = self._function, set(group.stages)
        every, readers = function.tensors(), function.readers()
        stages = [s for name in function.sort_tensors(own) if (s := function.stage(name))]
        read = {load.tensor for stage in stages for load in stage.body.loads()}
        outside = [every[name] for name in function.sort_tensors(read - own)]
        known = _find_known(stages, [t for t in outside if isinstance(t, Table)])
        # A line buffer has copies of tables.
        copies = group.row is not None
        tables = [t for t in outside if isinstance(t, Table) and (copies or t.name in known)]
        left = {table.name for table in tables}
        given = [tensor for tensor in outside if tensor.name not in left]
        order = [each.name for each in (*given, *tables, *stages)]
        if order != function.sort_tensors(order) or any(map(_has_no_number, order)):
            return None
        numbers = {name: _name(number, name) for number, name in enumerate(order)}

        def strides(tensor: Tensor) -> tuple[Extent, ...] | None:
            layout = function.result(tensor.name) if isinstance(tensor, Stage) else tensor
            return None if layout is None else layout.strides

        def number_stage(stage: Stage) -> Stage:
            body = stage.body
            made = [
                Load(numbers[i.tensor], i.indices, i.dtype) if isinstance(i, Load) else i
                for i in body.instructions
            ]
            whole = Body(tuple(made), body.result, body.guard)
            return dataclasses.replace(stage, name=numbers[stage.name], body=whole)

        results = [
            Result(numbers[stage.name], strides(stage))
            for stage in stages
            if function.result(stage.name) or not own.issuperset(readers.get(stage.name, ()))
        ]
        numbered = Function(
            function.name,
            tuple(Parameter(numbers[t.name], t.dtype, t.extents, strides(t)) for t in given),
            tuple(map(number_stage, stages)),
            tuple(results),
            # Lowering asks whether there are any.
            function.in_place,
            function.span,
            tuple(dataclasses.replace(t, name=numbers[t.name]) for t in tables),
            function.checks,
        )
        plain = dataclasses.replace(group, reasons=(), inlined=())
        moved = _replace_strings(plain, lambda text: numbers.get(text, text), {})
        return _Form(numbered, moved), {number: name for name, number in numbers.items()}


def _name(number: int, name: str) -> str:
    """Name of a form's tensor. Names of locals that are derived from it tell whether those derived
    from the tensor's name have its words or the name itself."""
    letter = "x" if split_words(name) == name else "X"
    return f"{_MARK}{letter}{number}{_MARK}"


def _find_known(stages: Sequence[Stage], tables: Sequence[Table]) -> set[str]:
    """Tables whose elements matter: those of integers, and those that others are computed from
    that are no floats, such as conditions. Of weights, a kernel needs to know no value."""
    found = {table.name for table in tables if not table.dtype.is_float}
    floats = {table.name for table in tables} - found
    for stage in stages:
        body = stage.body
        read = floats.intersection(load.tensor for load in body.loads())
        if read:
            values = zip(
                body.instructions,
                find_index_only(body, floats),
                find_index_only(body),
                strict=True,
            )
            if any(by and not without and not value_type(i).is_float for i, by, without in values):
                found |= read
    return found


def _has_no_number(name: str) -> bool:
    """Whether names are derived from a tensor's in another way than by additions to its words."""
    return _MARK in name or split_words(f"{name}_of") != f"{split_words(name)}_of"


class _Renaming:
    """Names of a group in place of its form's numbers."""

    def __init__(self, names: Mapping[str, str]) -> None:
        words = {number.lower(): split_words(name) for number, name in names.items()}
        self._names = {**words, **names}

    def rename(self, kernel: Kernel) -> Kernel | None:
        """Kernel with the names of a group; None if two of its names would become one, of which one
        has a number then."""
        texts: dict[str, str] = {}
        code = ("buffers", "scalars", "body", "arrays", "matrices")
        parts = {name: _replace_strings(getattr(kernel, name), self._write, texts) for name in code}
        if len(set(texts.values())) < len(texts):
            return None
        rest = [f.name for f in dataclasses.fields(kernel) if f.name not in code]
        parts |= {
            name: _replace_strings(getattr(kernel, name), self._write, texts) for name in rest
        }
        return Kernel(**parts)

    def _write(self, text: str) -> str:
        if _MARK not in text:
            return text
        return _NUMBERED.sub(lambda found: self._names[found[0]], text)


def _replace_strings(value: Any, change: Callable[[str], str], texts: dict[str, str]) -> Any:
    """Value with its strings changed, wherever they are in it; the same object if none changes.
    `texts` are the strings that were met, with what they became."""

    def replace(value: Any) -> Any:
        if isinstance(value, str):
            if value not in texts:
                texts[value] = change(value)
            return texts[value]
        if isinstance(value, tuple):
            before = cast("tuple[Any, ...]", value)
        else:
            kind = cast("type[Any]", type(value))
            before = tuple([getattr(value, name) for name in _list_fields(kind)])
        after = tuple(map(replace, before))
        if all(map(operator.is_, after, before)):
            return cast("Any", value)
        return after if isinstance(value, tuple) else cast("Any", type(value))(*after)

    return replace(value)


@functools.cache
def _list_fields(of: type[Any]) -> tuple[str, ...]:
    """Fields of a class of the IR, if one of them may contain a tensor's name."""
    if not dataclasses.is_dataclass(of) or issubclass(of, (Type, Operation)):
        return ()
    return tuple(field.name for field in dataclasses.fields(of))
