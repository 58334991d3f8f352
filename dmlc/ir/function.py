"""`Function`: a flat list of stages with its inputs and outputs. Frozen; `str` is its text form."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from itertools import chain

from dmlc.ir.nodes import Delay, Extent, Loop, OneStep, Parameter, Result, Stage, Table, Tensor
from dmlc.ir.print import print_sizes, print_stage, print_strides, print_table
from dmlc.parameters import expect
from dmlc.scalars import Array
from dmlc.sizes import as_extent, find_symbols, pack_strides
from dmlc.source import (
    Diagnostic,
    Span,
    UnknownNameError,
    UnsupportedError,
    list_names,
    unknown_name,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """Tensors in, tensors out. Results are stages; a parameter returned as it is needs a stage
    that copies it."""

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
    """What it takes to hold of its symbols, as conditions in C such as `N != 1`: checked where they
    get their sizes."""
    warnings: tuple[Diagnostic, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """What may not be meant, of what it was bound from."""
    loops: tuple[Loop, ...] = ()
    """Which of its stages are computed step by step, in their order."""
    one_step: OneStep | None = dataclasses.field(default=None, compare=False, repr=False)
    """Of a function that is what one step of a loop computes: which loop."""
    inherited: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """Of a function that is a part of another one: the run-time sizes of that one, which its stages
    may compute with though no parameter of its own has them."""
    _tensors: dict[str, Tensor] = dataclasses.field(
        default_factory=dict[str, "Tensor"], init=False, compare=False, repr=False
    )
    """What `tensors` gives, once it has been asked."""
    _symbols: list[tuple[str, ...]] = dataclasses.field(
        default_factory=list[tuple[str, ...]], init=False, compare=False, repr=False
    )
    """The same for `symbols`."""
    _arrays: dict[str, Array] = dataclasses.field(
        default_factory=dict[str, Array], init=False, compare=False, repr=False
    )
    """The same for `arrays`."""
    _readers: dict[str, tuple[str, ...]] = dataclasses.field(
        default_factory=dict[str, tuple[str, ...]], init=False, compare=False, repr=False
    )
    """The same for `readers`."""
    _order: dict[str, int] = dataclasses.field(
        default_factory=dict[str, int], init=False, compare=False, repr=False
    )
    _results: dict[str, Result] = dataclasses.field(
        default_factory=dict[str, Result], init=False, compare=False, repr=False
    )
    marks: set[str] = dataclasses.field(
        default_factory=set[str], init=False, compare=False, repr=False
    )
    """What has been found out about it, for good: it is as it is. The verifier keeps here that it
    breaks no rule."""

    def with_stages(self, stages: Iterable[Stage]) -> Function:
        """The function with other stages; the function itself, and all that is known of it, where
        they are its own."""
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
        if not self._results:
            self._results.update({r.name: r for r in self.results})
        return self._results.get(name)

    def symbols(self) -> tuple[str, ...]:
        """The run-time sizes, in order of first use."""
        if not self._symbols:
            sizes = [*(p.extents for p in self.parameters), *(s.sizes for s in self.stages)]
            self._symbols.append(find_symbols(chain.from_iterable(sizes)))
        return self._symbols[0]

    def run_symbol(self) -> str | None:
        """The symbol that counts the elements of every tensor of run-time size: each is a run of
        them, and stands for packed arrays of any one shape. None where symbols are sizes of axes,
        or there are none."""
        symbols = self.symbols()
        if symbols and self.has_open_strides():
            return None
        tensors = (*self.parameters, *self.stages)
        runs = (t.extents for t in tensors if any(isinstance(e, str) for e in t.extents))
        return symbols[0] if len(symbols) == 1 and all(e == symbols for e in runs) else None

    def has_open_strides(self) -> bool:
        """Whether the layout of a tensor depends on sizes that are known at run time only, other
        than in being packed."""
        strided = (t.name for t in (*self.parameters, *self.results) if t.strides is not None)
        return any(
            isinstance(each, str)
            for name in strided
            for each in (*self.tensors()[name].extents, *self.strides(name))
        )

    def tensors(self) -> Mapping[str, Tensor]:
        """Everything a load can name: parameters, tables, what stages of loops were a step before,
        and stages."""
        if not self._tensors:
            self._tensors.update(
                {t.name: t for t in (*self.parameters, *self.tables, *self.delays(), *self.stages)}
            )
        return self._tensors

    def arrays(self) -> Mapping[str, Array]:
        """The elements of its tables, by name."""
        if not self._arrays:
            self._arrays.update({table.name: table.array() for table in self.tables})
        return self._arrays

    def delays(self) -> tuple[Delay, ...]:
        """What stages of its loops were at the step before."""
        return tuple(delay for loop in self.loops for delay in loop.delays)

    def strides(self, name: str) -> tuple[Extent, ...]:
        """How many elements a tensor's memory has from one position along each axis to the next:
        what it says itself, or else those of packed memory, the last axis fastest."""
        tensor = self.tensors().get(name)
        if tensor is None:
            raise UnknownNameError(unknown_name("tensor", name, self.tensors()))
        layout = self.result(name) if isinstance(tensor, Stage) else tensor
        if layout is not None and layout.strides is not None:
            return layout.strides
        return tuple(as_extent(step) for step in pack_strides(tensor.extents))

    def find_end(self, name: str) -> int | None:
        """The elements of a tensor's memory, up to its last one; None where a size is known at run
        time only."""
        extents = self.tensors()[name].extents
        sizes = [e for e in extents if isinstance(e, int)]
        if len(sizes) < len(extents):
            return None
        steps = [step for step in self.strides(name) if isinstance(step, int)]
        ends = zip(sizes, steps, strict=True)
        return 0 if 0 in sizes else 1 + sum((size - 1) * step for size, step in ends)

    def sort_tensors(self, names: Iterable[str]) -> list[str]:
        """Tensors of the function, in its order."""
        if not self._order:
            self._order.update({name: number for number, name in enumerate(self.tensors())})
        try:
            return sorted(names, key=self._order.__getitem__)
        except KeyError as error:
            unknown = unknown_name("tensor", str(error.args[0]), self._order)
            raise UnknownNameError(unknown) from None

    def readers(self) -> Mapping[str, tuple[str, ...]]:
        """The stages that read each tensor that is read, in order."""
        if not self._readers:
            found: dict[str, dict[str, None]] = {}
            for stage in self.stages:
                for load in stage.body.loads():
                    found.setdefault(load.tensor, {})[stage.name] = None
            self._readers.update({name: tuple(stages) for name, stages in found.items()})
        return self._readers

    def refuse_loops(self, why: str) -> None:
        """Raises `UnsupportedError` where some stages are computed step by step; `why` is a clause
        that says who takes none of those."""
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
    """The text form, without a line break at its end. `parse` reads it back."""
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
