"""`Function`: a flat list of stages with its inputs and outputs. Frozen; `str` is its text form."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterable, Mapping
from itertools import chain

from dmlc.ir.nodes import Delay, Extent, Loop, OneStep, Parameter, Result, Stage, Table, Tensor
from dmlc.ir.print import print_sizes, print_stage, print_strides, print_table
from dmlc.lazy import kept
from dmlc.parameters import expect
from dmlc.scalars import Array
from dmlc.sizes import as_extent, find_symbols, pack_strides
from dmlc.source import (
    Diagnostic,
    Span,
    UnknownNameError,
    UnsupportedError,
    find_named,
    list_names,
    unknown_name,
)


@dataclasses.dataclass(frozen=True)
class Function:
    """Computation of result tensors from parameter tensors. Every result is a stage: to return a
    parameter unchanged takes a stage that copies it."""

    name: str
    parameters: tuple[Parameter, ...]
    stages: tuple[Stage, ...]
    results: tuple[Result, ...]
    in_place: tuple[tuple[str, str], ...] = ()
    """(result, parameter) pairs: the result may be stored over that parameter's memory, where
    both have the same type, extents and strides."""
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)
    tables: tuple[Table, ...] = ()
    checks: tuple[str, ...] = ()
    """Conditions on its symbols, as C expressions such as `N != 1`. They are checked when the
    symbols get their sizes."""
    warnings: tuple[Diagnostic, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """Warnings of the source that it was bound from."""
    loops: tuple[Loop, ...] = ()
    """Groups of its stages that are computed step by step, in stage order."""
    one_step: OneStep | None = dataclasses.field(default=None, compare=False, repr=False)
    """The loop of which the function computes one step, if it does."""
    inherited: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """Run-time sizes of the function that this one is a part of: its stages may compute with them
    though no parameter of its own has them."""
    marks: set[str] = dataclasses.field(
        default_factory=set[str], init=False, compare=False, repr=False
    )
    """Properties found to hold, kept because the function is frozen. The verifier marks well-formed
    functions here."""

    def with_stages(self, stages: Iterable[Stage]) -> Function:
        """Function with other stages; the same object, caches included, if each stage is
        identical."""
        made = tuple(stages)
        if len(made) == len(self.stages) and all(map(operator.is_, made, self.stages)):
            return self
        return dataclasses.replace(self, stages=made)

    def parameter(self, name: str) -> Parameter | None:
        return next((p for p in self.parameters if p.name == name), None)

    def stage(self, name: str) -> Stage | None:
        found = self.tensors().get(name)
        return found if isinstance(found, Stage) else None

    def result(self, name: str) -> Result | None:
        return self._results.get(name)

    @functools.cached_property
    def _results(self) -> Mapping[str, Result]:
        return {result.name: result for result in self.results}

    @kept
    def symbols(self) -> tuple[str, ...]:
        """Symbols of its run-time sizes, in order of first use."""
        sizes = [*(p.extents for p in self.parameters), *(s.sizes for s in self.stages)]
        return find_symbols(chain.from_iterable(sizes))

    def run_symbol(self) -> str | None:
        """The symbol that is the element count of every tensor of run-time size, if each of these
        is a one-dimensional run of that size; the run then stands for packed arrays of any one
        shape. None otherwise."""
        symbols = self.symbols()
        if symbols and self.has_open_strides():
            return None
        tensors = (*self.parameters, *self.stages)
        runs = (t.extents for t in tensors if any(isinstance(e, str) for e in t.extents))
        return symbols[0] if len(symbols) == 1 and all(e == symbols for e in runs) else None

    def has_open_strides(self) -> bool:
        """Whether explicit strides, or the extents of a tensor that has them, are known at run time
        only."""
        strided = (t.name for t in (*self.parameters, *self.results) if t.strides is not None)
        return any(
            isinstance(each, str)
            for name in strided
            for each in (*self.tensors()[name].extents, *self.strides(name))
        )

    @kept
    def tensors(self) -> Mapping[str, Tensor]:
        """Tensors that a load can name: parameters, tables, delays and stages, by name."""
        every = (*self.parameters, *self.tables, *self.delays(), *self.stages)
        return {tensor.name: tensor for tensor in every}

    @kept
    def arrays(self) -> Mapping[str, Array]:
        """Elements of its tables, by name."""
        return {table.name: table.array() for table in self.tables}

    def delays(self) -> tuple[Delay, ...]:
        """Delays of all its loops."""
        return tuple(delay for loop in self.loops for delay in loop.delays)

    def strides(self, name: str) -> tuple[Extent, ...]:
        """Strides of a tensor in elements, one per axis: explicit ones, or those of packed memory.
        Raises `UnknownNameError`."""
        tensor = find_named("tensor", name, self.tensors())
        layout = self.result(name) if isinstance(tensor, Stage) else tensor
        if layout is not None and layout.strides is not None:
            return layout.strides
        return tuple(as_extent(step) for step in pack_strides(tensor.extents))

    def find_end(self, name: str) -> int | None:
        """Offset just after the last element of a tensor in its memory, in elements; None if a size
        is known at run time only."""
        extents = self.tensors()[name].extents
        sizes = [e for e in extents if isinstance(e, int)]
        if len(sizes) < len(extents):
            return None
        steps = [step for step in self.strides(name) if isinstance(step, int)]
        ends = zip(sizes, steps, strict=True)
        return 0 if 0 in sizes else 1 + sum((size - 1) * step for size, step in ends)

    def sort_tensors(self, names: Iterable[str]) -> list[str]:
        """Tensor names in the function's order. Raises `UnknownNameError`."""
        try:
            return sorted(names, key=self._order.__getitem__)
        except KeyError as error:
            unknown = unknown_name("tensor", str(error.args[0]), self._order)
            raise UnknownNameError(unknown) from None

    @functools.cached_property
    def _order(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.tensors())}

    @kept
    def readers(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the stages that read each tensor, in order, for tensors that are read."""
        found: dict[str, dict[str, None]] = {}
        for stage in self.stages:
            for load in stage.body.loads():
                found.setdefault(load.tensor, {})[stage.name] = None
        return {name: tuple(stages) for name, stages in found.items()}

    def refuse_loops(self, why: str) -> None:
        """Raises `UnsupportedError` if some stages are computed step by step; `why` is a clause
        that says who does not support them."""
        if self.loops:
            span = self.tensors()[self.loops[0].stages[0]].span or self.span
            raise UnsupportedError(f"'{self.name}' has a loop over time, and {why}", span)

    def __str__(self) -> str:
        return print_function(self)

    def __repr__(self) -> str:
        given = list_names([p.name for p in self.parameters])
        found = list_names([r.name for r in self.results])
        stages = f"{len(self.stages)} stage" + "s" * (len(self.stages) != 1)
        return f"<function {self.name}: {given} -> {found}, {stages}>"


def print_function(function: Function) -> str:
    """Text form of a function, without a final line break. `parse` reads it back."""
    expect("function", function, Function, "an ir.Function")
    given = ", ".join(
        f"%{p.name}: {p.dtype.short}{print_sizes(p.extents)}{print_strides(p.strides)}"
        for p in function.parameters
    )
    returned = ", ".join(f"%{r.name}{print_strides(r.strides)}" for r in function.results)
    lines = [f"func @{function.name}({given}) -> ({returned})"]
    if function.in_place:
        pairs = ", ".join(f"%{result} over %{parameter}" for result, parameter in function.in_place)
        lines[0] += f" in place ({pairs})"
    if function.checks:
        conditions = ", ".join(f'"{check}"' for check in function.checks)
        lines[0] += f" where ({conditions})"
    lines[0] += " {"
    for table in function.tables:
        lines += [f"  {line}" for line in print_table(table)]
    opened = {loop.stages[0]: loop for loop in function.loops}
    last = {loop.stages[-1] for loop in function.loops}
    indent = "  "
    for stage in function.stages:
        loop = opened.get(stage.name)
        if loop is not None:
            lines.append("  loop backwards {" if loop.backwards else "  loop {")
            indent = "    "
            lines += [
                f"{indent}%{d.name}: {d.dtype.short}{print_sizes(d.extents)} = before %{d.of}"
                for d in loop.delays
            ]
        lines += [f"{indent}{line}" for line in print_stage(stage)]
        if stage.name in last:
            indent = "  "
            lines.append("  }")
    lines.append("}")
    return "\n".join(lines)
