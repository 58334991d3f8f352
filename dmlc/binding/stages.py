"""Construction of stages from values: names, reductions, storage.

`StageMaker` is the base of the lowering of operators (`compute`) and of graphs
(`graph_statements`). It knows no statements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from dmlc import ir
from dmlc.binding.bounds import check_reads
from dmlc.binding.builder import NodeBuilder
from dmlc.binding.call_errors import raise_mistakes
from dmlc.binding.emission import Emission, emit
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding, ir_name
from dmlc.binding.nodes import IndexVariable, Node, Op, Value, Weak
from dmlc.binding.tensors import refuse_excess
from dmlc.ir.index import find_index_only
from dmlc.ir.naming import take_name
from dmlc.ir.verify import find_unsound_pairs
from dmlc.scalars import DataType
from dmlc.sizes import LARGEST, Size, list_symbols, measure, multiply, write_condition
from dmlc.source import DmlcError, InternalError, Span, UnsupportedError
from dmlc.transform.simplify import rename_loop, rename_stage


class StageMaker:
    """Stages of one function, in order, and their nodes."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.builder = NodeBuilder()
        self.evaluator = self.make_evaluator()
        self.evaluator.materialize = self.materialize
        self.evaluator.place = self.place
        self.stages: list[ir.Stage] = []
        self.loops: list[ir.Loop] = []
        """Loops over time steps that some stages belong to."""
        self.errors: list[DmlcError] = []
        self.extents: dict[str, tuple[ir.Extent, ...]] = {}
        """Extents of the tensors that a stage may read, as far as known."""
        self.names: dict[str, None] = {}
        """Names in use."""
        self.kept: dict[str, None] = {}
        """Names that their stages must keep: outputs."""
        self.assigned: dict[str, None] = {}
        """Names of statements, which no reduction inside a statement takes."""

    def make_evaluator(self) -> Evaluator:
        """Evaluator of the stages' expressions."""
        return Evaluator(self.binding, self.builder)

    def materialize(self, value: Node, span: Span) -> Node:
        """Stores a computation on whole tensors whose elements are read in a stage."""
        dtype, shape = value.dtype, value.shape
        if shape is None:
            raise InternalError("a tensor needs a shape", span)
        if isinstance(dtype, Weak):
            dtype = DataType.FLOAT32 if dtype is Weak.FLOAT else DataType.INT32
            value = self.builder.conversions.adapt(value, dtype, span)
        made = self.add_stage("element", dtype, value, shape, span)
        self.builder.nodes.hold(value, self.stages[-1].name)
        return made

    def place(
        self, extents: tuple[ir.Extent, ...], make: Callable[[list[Node]], Value], span: Span
    ) -> Node:
        """Tensor of these sizes whose element at each index is `make` of the index."""
        bound = [self.builder.nodes.bind(axis, extent) for axis, extent in enumerate(extents)]
        element = self.builder.conversions.weak(make(bound), span)
        dtype = element.dtype
        if not isinstance(dtype, DataType):
            raise InternalError("what is joined and split has a type", span)
        variables = tuple(v.free[0] for v in bound)
        return self.add_stage("element", dtype, element, extents, span, variables)

    def storage(self, value: Node) -> DataType:
        """Data type of a value as a tensor."""
        if not isinstance(value.dtype, DataType):
            raise InternalError("a tensor needs a type")
        return value.dtype

    def define_tensor(self, name: str, value: Value, span: Span) -> Value:
        """Value of a name: a stage, unless it renames a tensor or holds none."""
        if not isinstance(value, Node) or value.shape is None or isinstance(value.dtype, Weak):
            return value
        if self.builder.nodes.loaded(value) is not None:
            return value
        return self.hold(name, value, span)

    def hold(self, name: str, value: Node, span: Span) -> Node:
        """Stage of that name, in the storage type of the value."""
        dtype = self.storage(value)
        value = self.builder.conversions.adapt(value, dtype.compute, span)
        return self.add_stage(name, dtype, value, value.shape or (), span)

    # Names --------------------------------------------------------------------------------

    def define(self, name: str, make: Callable[[], Value]) -> None:
        """Binds a name. If that fails, every read of the name fails too; the error is reported
        once."""
        self.define_several([name], lambda: [make()])

    def define_several(self, names: Sequence[str], make: Callable[[], Sequence[Value]]) -> None:
        """Binds names that are defined together, as `define` does."""
        try:
            self.evaluator.locals.update(zip(names, make(), strict=True))
        except DmlcError as error:
            self.note_failure(names, error)

    def note_failure(self, names: Iterable[str], error: DmlcError) -> None:
        """Records an error, and binds the names to it."""
        self.evaluator.locals.update({name: DmlcError(()) for name in names})
        self.errors.append(error)

    def raise_errors(self) -> None:
        """Raises one error with every independent diagnostic."""
        unsupported = all(isinstance(e, UnsupportedError) for e in self.errors if e.diagnostics)
        found = [d for error in self.errors for d in error.diagnostics]
        raise_mistakes(found, UnsupportedError if unsupported else DmlcError)

    # Stages -------------------------------------------------------------------------------

    def add_stage(
        self,
        wanted: str,
        dtype: DataType,
        value: Node,
        domain: tuple[ir.Extent, ...],
        span: Span,
        variables: tuple[IndexVariable, ...] | None = None,
    ) -> Node:
        """Stage that holds a value, and a load of it. `variables` are the index variables along its
        axes if it is defined by index."""
        nodes = self.builder.nodes
        value = self.builder.conversions.drop_rounding(value, dtype)
        own = nodes.is_open_fold(value) and value.dtype is dtype
        # Otherwise the fold gets a stage of its own, and this stage converts or broadcasts it.
        own &= value.shape == domain if value.form is Op.FOLD else variables is not None
        for inner in nodes.list_folds(value):
            if not own or inner is not value:
                self.add_fold(inner, wanted, span)
        name = ir_name(wanted) if wanted in self.kept else self.fresh_name(wanted)
        self.emit_stage(name, dtype, value, domain, span, variables or (), own=own)
        if own and (value.form is Op.FOLD or value.free == variables):
            nodes.hold(value, name)
        return nodes.load(name, dtype, domain)

    def emit_stage(
        self,
        name: str,
        dtype: DataType,
        value: Node,
        domain: tuple[ir.Extent, ...],
        span: Span,
        variables: tuple[IndexVariable, ...],
        *,
        own: bool,
    ) -> None:
        """Stage that computes a value; with `own`, the reduction that the value is."""
        loaded, reduction = self.builder.nodes.loaded, None
        if own:
            reduction = ir.Reduction(str(value.payload), value.reduced)
            emission = emit(loaded, value.operands, domain, variables, value.bound, value.axes)
        else:
            emission = emit(loaded, (value,), domain, variables)
        self.append(ir.Stage(name, dtype, domain, emission.body(), reduction, span), emission)

    def append(self, stage: ir.Stage, emission: Emission) -> None:
        axes = () if stage.reduction is None else stage.reduction.axes
        refuse_excess(f"'{stage.name}'", stage.extents, stage.span)
        refuse_excess("this reduction", [extent for _, extent in axes], stage.span)
        check_reads(self.builder, stage, emission, self.extents)
        self.stages.append(stage)
        self.extents[stage.name] = stage.extents
        if all(find_index_only(stage.body, self.builder.nodes.placed)):
            self.builder.nodes.placed.add(stage.name)

    def add_fold(self, value: Node, stem: str, span: Span) -> None:
        """Stage of its own for a reduction inside a statement."""
        if not isinstance(value.dtype, DataType):
            raise InternalError("a stage needs a fold that has a type", span)
        nodes, domain = self.builder.nodes, value.shape or tuple(v.extent for v in value.free)
        name = f"{nodes.loaded(value.operands[0]) or stem}_{value.payload}"
        name = self.fresh_name(name if name not in self.assigned else f"{name}_1")
        self.emit_stage(name, value.dtype, value, domain or (1,), span, value.free, own=True)
        nodes.hold(value, name)

    def fresh_name(self, wanted: str) -> str:
        return take_name(wanted, self.names)


def make_function(
    name: str,
    parameters: Sequence[ir.Parameter],
    stages: Sequence[ir.Stage],
    results: Sequence[ir.Result],
    span: Span,
    checks: Iterable[str] = (),
    loops: Sequence[ir.Loop] = (),
) -> ir.Function:
    """Function, with the results that it may compute in place. Only the `checks` on its own sizes
    are kept."""
    given, made, leave = tuple(parameters), tuple(stages), tuple(results)
    function = ir.Function(name, given, made, leave, span=span, loops=tuple(loops))
    # Later steps of a loop may read parameters that an earlier step would overwrite.
    in_place = () if loops else _find_in_place(function)
    symbols = function.symbols()
    checks = dict.fromkeys((*checks, *list_counted(stages), *list_least(given, made)))
    kept = tuple(c for c in checks if all(s in symbols for s in list_symbols(c)))
    return dataclasses.replace(function, in_place=in_place, checks=kept)


def make_bound(
    binding: Binding,
    stages: Sequence[ir.Stage],
    checks: Iterable[str],
    loops: Sequence[ir.Loop] = (),
    results: Sequence[ir.Result] | None = None,
) -> ir.Function:
    """Function of a bound operator: its parameters are the inputs present, in table order. Its
    results are the outputs, or else `results`."""
    parameters = [
        ir.Parameter(
            ir_name(t.name),
            binding.dtype(t.name, t.definition.span),
            binding.extents(t.name, t.definition.span),
            t.strides,
            t.definition.span,
        )
        for t in binding.tensors.values()
        if not t.definition.output
    ]
    parameters += [ir.Parameter(name, DataType.FLOAT32, ()) for name in binding.opened]
    if results is None:
        outputs = [t for t in binding.tensors.values() if t.definition.output]
        results = [ir.Result(ir_name(t.name), t.strides) for t in outputs]
    operator = binding.operator
    return make_function(
        operator.short_name, parameters, stages, results, operator.syntax.name.span, checks, loops
    )


def list_counted(stages: Sequence[ir.Stage]) -> list[str]:
    """Conditions on open sizes under which an index of `argmin` or `argmax` fits in 32 bits."""
    reductions = [s.reduction for s in stages if s.reduction is not None]
    counts = [
        multiply(extent for _, extent in each.axes) for each in reductions if each.is_positional
    ]
    return [write_condition(c, "<=", LARGEST) for c in counts if isinstance(c, Size)]


def list_least(parameters: Sequence[ir.Parameter], stages: Sequence[ir.Stage]) -> list[str]:
    """Conditions under which every axis has an element, as an axis of open size must."""
    extents: dict[ir.Extent, None] = {}
    for tensor in (*parameters, *stages):
        extents.update(dict.fromkeys(tensor.extents))
        reduction = tensor.reduction if isinstance(tensor, ir.Stage) else None
        extents.update(dict.fromkeys(e for _, e in (reduction.axes if reduction else ())))
    sizes = [measure(e) for e in extents if isinstance(e, str)]
    short = (s for s in sizes if isinstance(s, Size) and s.bounds()[0] < 1)
    return [write_condition(size, ">=", 1) for size in short]


def _find_in_place(function: ir.Function) -> tuple[tuple[str, str], ...]:
    """Results that may be stored over a parameter: each element is read, by the stages that lead to
    this one result, only to compute the element that replaces it."""
    reads = {p.name: frozenset((p.name,)) for p in function.parameters}
    recomputed: frozenset[str] = frozenset()
    """Parameters that a stage in between reads, which may be recomputed at each of its reads."""
    for stage in function.stages:
        loads = stage.body.loads()
        reads[stage.name] = frozenset[str]().union(*(reads[load.tensor] for load in loads))
        jumping = (reads[load.tensor] for load in loads if not _reads_in_order(stage, load))
        recomputed = recomputed.union(*jumping)
    others = {
        r.name: recomputed.union(*(reads[o.name] for o in function.results if o is not r))
        for r in function.results
    }
    pairs = [
        (r.name, p.name)
        for r in function.results
        for p in function.parameters
        if p.name in reads[r.name] - others[r.name]
    ]
    unsound = find_unsound_pairs(function, pairs)
    return tuple(pair for pair in pairs if pair not in unsound)


def _reads_in_order(stage: ir.Stage, load: ir.Load) -> bool:
    """Whether each axis is read at the stage's own index, or at a constant one."""
    for axis, number in enumerate(load.indices):
        position = stage.body.instructions[number]
        own = isinstance(position, ir.Index) and position.axis == axis
        if not own and not isinstance(position, ir.Constant):
            return False
    return True


# Stages inside others --------------------------------------------------------------------------


_Named = TypeVar("_Named", ir.Parameter, ir.Result, ir.Table)


def rename_tensors(
    function: ir.Function, names: Mapping[str, str], span: Span | None = None
) -> ir.Function:
    """Function with some tensors renamed, none of whose results is computed in place. `span`
    replaces those of its stages."""

    def rename(each: _Named) -> _Named:
        return dataclasses.replace(each, name=names.get(each.name, each.name))

    return dataclasses.replace(
        function,
        parameters=tuple(map(rename, function.parameters)),
        stages=tuple(rename_stage(s, names, span) for s in function.stages),
        results=tuple(map(rename, function.results)),
        in_place=(),
        tables=tuple(map(rename, function.tables)),
        loops=tuple(rename_loop(loop, names) for loop in function.loops),
    )


def keep_loops(loops: Sequence[ir.Loop], stages: Sequence[ir.Stage]) -> tuple[ir.Loop, ...]:
    """Loops whose stages were kept."""
    names = {stage.name for stage in stages}
    return tuple(loop for loop in loops if loop.stages[0] in names)
