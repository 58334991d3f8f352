"""Reverse-mode differentiation of functions in index notation.

The adjoint of a stage is a tensor of its shape: the derivative of the differentiated result by each
element. Stages are processed from the last to the first. The adjoint goes back through the body by
the rules of `derivatives`, to every element that is loaded; the adjoint of an element is the sum
over the points that load it, which `invert` finds. Nothing is scattered, so that a gradient is an
ordinary function with a fixed order of sums, and can be differentiated again.

Element-wise stages are first inlined, so that a NaN of a branch not taken does not reach the
gradient. Adjoints have compute types, and are rounded once, when a result is stored. Fusion decides
whether values of the original function are recomputed or kept.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Function,
    Index,
    Load,
    Parameter,
    Reduction,
    Result,
    Select,
    Stage,
    Symbol,
    reads_own_place,
    value_type,
    verify,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import find_index_only, part_conditions, reach_back
from dmlc.ir.naming import take_name
from dmlc.scalars import AdjointRule, DataType
from dmlc.sizes import find_symbols
from dmlc.source import DmlcError, Span, check_known
from dmlc.transform.adjoints import (
    add_adjoints,
    choose,
    drop_certain,
    find_moving,
    is_stopped,
    load_own,
    number_point,
)
from dmlc.transform.algebra import Normal, is_zero
from dmlc.transform.derivatives import Adjoint, find_kink, spread
from dmlc.transform.inline import clamp_reads
from dmlc.transform.invert import find_readers
from dmlc.transform.pointwise import find_copies, find_shifting, inline_pointwise
from dmlc.transform.reuse import Reuse
from dmlc.transform.signs import Sign, Signs
from dmlc.transform.simplify import list_live, redirect_loads, rename_stage
from dmlc.transform.straighten import LoopAdjoints, close_loops, straighten
from dmlc.transform.weigh import sum_weights


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Value of a gradient at a point without a unique derivative."""

    text: str
    span: Span | None


@dataclasses.dataclass(frozen=True, slots=True)
class Gradient:
    """A derived function, with notes on it."""

    function: Function
    vanishing: tuple[str, ...]
    """Inputs whose gradient is 0 everywhere without `stop_gradient`: no result depends on them, or
    only through operations whose derivative is 0."""
    choices: tuple[Choice, ...]


def differentiate(
    function: Function,
    wrt: Sequence[str],
    given: Mapping[str, str],
    names: Mapping[str, str],
    kept: Mapping[str, str] | None = None,
) -> Gradient:
    """Gradient of a function by some of its tensors, parameters or stages.

    `given` names, for results of the function, the parameter with the adjoint, of the result's type
    and extents. `names` names the result that is the gradient by each tensor of `wrt`, of that
    tensor's type and extents. `kept` names, for results or stages whose values are available, the
    parameter with them. Unused parameters of the function are dropped. Raises `DmlcError` for
    tensors that do not exist, or hold no floats.
    """
    tensors = function.tensors()
    check_known("tensor", tensors, *wrt, *given, *(kept or {}))
    for name in (*wrt, *given):
        dtype = tensors[name].dtype
        if not dtype.is_float:
            raise DmlcError(f"'{name}' has no gradient: it holds {dtype.name}", tensors[name].span)
    new = (*given.values(), *names.values(), *(kept or {}).values())
    straight, adjoints = straighten(function, new, given)
    freed, own = _free_names(straight, (*new, *adjoints.names()))
    reverse = _Reverse(
        freed,
        [own.get(name, name) for name in (*wrt, *adjoints.outgoing)],
        {own.get(name, name): parameter for name, parameter in (*given.items(), *adjoints.seeds())},
        {own.get(name, name): result for name, result in {**names, **adjoints.outgoing}.items()},
        {own.get(name, name): parameter for name, parameter in (kept or {}).items()},
        adjoints.renamed(own),
    )
    reverse.run()
    found = reverse.finish()
    before = {made: name for name, made in own.items()}
    vanishing = [before.get(name, name) for name in found.vanishing]
    return dataclasses.replace(
        found, vanishing=tuple(name for name in vanishing if name not in adjoints.outgoing)
    )


def _free_names(function: Function, wanted: Sequence[str]) -> tuple[Function, dict[str, str]]:
    """Function with stages renamed whose names are in `wanted`, and their new names."""
    taken = dict.fromkeys((*function.tensors(), *wanted))
    own = {s.name: take_name(s.name, taken) for s in function.stages if s.name in wanted}
    if not own:
        return function, own
    stages = tuple(rename_stage(stage, own) for stage in function.stages)
    results = tuple(dataclasses.replace(r, name=own.get(r.name, r.name)) for r in function.results)
    return dataclasses.replace(function, stages=stages, results=results, in_place=()), own


@dataclasses.dataclass(frozen=True, slots=True)
class _Term:
    """Contribution of one load to the adjoint of a tensor: a body over the tensor, summed over
    axes."""

    body: Body
    axes: tuple[tuple[int, Extent], ...]
    span: Span | None


class _Reverse:
    def __init__(
        self,
        function: Function,
        wrt: Sequence[str],
        given: Mapping[str, str],
        names: Mapping[str, str],
        kept: Mapping[str, str],
        adjoints: LoopAdjoints,
    ) -> None:
        self.adjoints = adjoints
        self.function = function
        self.wrt = wrt
        self.given = given
        self.names = names
        self.kept = kept
        self.copies = find_copies(function, kept)
        self.tensors = function.tensors()
        self.taken = dict.fromkeys((*self.tensors, *given.values(), *kept.values()))
        self.taken |= dict.fromkeys(names.values())
        # Adjoints of two steps meet at the values that one step passes to the next.
        self.stages = inline_pointwise(function, {*kept, *self.copies, *adjoints.incoming})
        forward = {stage.name: stage for stage in self.stages}
        self.reuse = Reuse(forward, [name for name in kept if name in forward])
        self.moving = self._find_moving()
        self.shifting = find_shifting(self.stages)
        self.signs = Signs(function.stages)
        self.parts: dict[str, list[_Term]] = {}
        self.made: list[Stage] = []
        self.vanishing: list[str] = []
        self.choices: dict[Choice, None] = {}

    def _find_moving(self) -> set[str]:
        """Tensors that depend on the inputs of the differentiation."""
        found = set(self.wrt)
        for stage in self.stages:
            combined = stage.reduction is None or stage.reduction.record.adjoint is not None
            moves = stage.dtype.is_float and combined
            body = stage.body
            if moves and find_moving(body, found, stage.span)[body.result]:
                found.add(stage.name)
        return found

    def run(self) -> None:
        for stage in reversed(self.stages):
            if stage.name in self.moving:
                adjoint = self._finish_adjoint(stage)
                if adjoint is not None:
                    self._go_back(stage, adjoint)
        # Values of few elements are cheap to read in a kernel that goes on to many.
        for parameter in sorted(self.function.parameters, key=_count_elements):
            if parameter.name in self.wrt:
                self._finish_adjoint(parameter)

    # Adjoints -----------------------------------------------------------------------------

    def _finish_adjoint(self, tensor: Parameter | Stage) -> str | None:
        """Name of the tensor with the adjoint of a tensor whose contributions are complete; None if
        it is 0."""
        name, parts = tensor.name, self._drop_zeros(tensor)
        wanted, seed = name in self.wrt, self.given.get(name)
        if not parts and seed is not None and not wanted:
            return seed
        if not parts and seed is None:
            if not wanted:
                return None
            if _count_elements(tensor) and not is_stopped(self.stages, name):
                self.vanishing.append(name)
        dtype = tensor.dtype.compute
        own = take_name(f"d_{name}", self.taken)
        if seed is not None:
            parts.insert(0, self._read(seed, tensor, dtype))
        if len(parts) > 1:
            parts = [self._join(tensor, own, parts)]
        if not parts:
            parts = [_Term(Body.make([Constant(dtype, 0.0)], 0), (), tensor.span)]
        (part,) = parts
        source = self._find_source(tensor, part)
        if source is not None and not wanted:
            return source
        if not wanted:
            self._add(own, dtype, tensor, part)
            return own
        # The stored result is rounded; the value used further is not.
        result = self.names[name]
        if isinstance(tensor, Stage) and tensor.dtype is not dtype:
            self._add(own, dtype, tensor, part)
            part = self._read(own, tensor, dtype)
            self._add(result, tensor.dtype, tensor, part)
            return own
        self._add(result, tensor.dtype, tensor, part)
        return result

    def _find_source(self, tensor: Parameter | Stage, part: _Term) -> str | None:
        """Adjoint that this one equals, if its only contribution is a copy."""
        load = part.body.instructions[part.body.result]
        if part.axes or not isinstance(load, Load):
            return None
        stage = self._make_stage("", load.dtype, tensor, part)
        known = {s.name: s.extents for s in self.made}
        known |= {p: self.tensors[name].extents for name, p in self.given.items()}
        same = known.get(load.tensor) == tensor.extents and reads_own_place(stage, load)
        return load.tensor if same else None

    def _drop_zeros(self, tensor: Parameter | Stage) -> list[_Term]:
        """Contributions to a tensor's adjoint, without those that algebra shows to be 0; none if
        their sum is."""
        parts = self.parts.pop(tensor.name, [])
        if tensor.name in self.given or tensor.name not in self.shifting:
            return parts
        normal = Normal(self._list_stages(), expands=True)
        made = [(part, self._make_stage("", DataType.FLOAT32, tensor, part)) for part in parts]
        left = [(part, stage) for part, stage in made if not is_zero(normal, [stage])]
        gone = is_zero(normal, [stage for _, stage in left])
        return [] if gone else [part for part, _ in left]

    def _read(self, name: str, tensor: Parameter | Stage, dtype: DataType) -> _Term:
        builder = BodyBuilder()
        return _Term(builder.make(load_own(builder, name, tensor, dtype)), (), tensor.span)

    def _join(self, tensor: Parameter | Stage, own: str, parts: Sequence[_Term]) -> _Term:
        """Several contributions as one, with sums as stages of their own."""
        builder, values = BodyBuilder(), list[int]()
        for part in parts:
            if part.axes:
                name = take_name(f"{own}_part", self.taken)
                self._add(name, tensor.dtype.compute, tensor, part)
                values.append(load_own(builder, name, tensor, tensor.dtype.compute))
            else:
                values.append(builder.copy(part.body)[part.body.result])
        return _Term(builder.make(builder.fold("add", values)), (), tensor.span)

    def _add(self, name: str, dtype: DataType, tensor: Parameter | Stage, part: _Term) -> None:
        stage = self._make_stage(name, dtype, tensor, part)
        known = self.reuse.rewrite(
            self._list_stages, stage, lambda: take_name(f"{name}_sum", self.taken)
        )
        for one in (stage,) if known is None else known:
            self.made += sum_weights(one, lambda: take_name(f"{name}_weight", self.taken))

    def _list_stages(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in (*self.stages, *self.made)}

    def _make_stage(
        self, name: str, dtype: DataType, tensor: Parameter | Stage, part: _Term
    ) -> Stage:
        reduction, span = Reduction("sum", part.axes) if part.axes else None, part.span
        return Stage(name, dtype, tensor.extents, part.body, reduction, span or tensor.span)

    # A stage ------------------------------------------------------------------------------

    def _go_back(self, stage: Stage, adjoint: str) -> None:
        """Propagates the adjoint of a stage to the tensors that its body loads."""
        builder = BodyBuilder()
        numbers = builder.copy(stage.body)
        count = len(builder.instructions)
        result = numbers[stage.body.result]
        guard = None if stage.body.guard is None else numbers[stage.body.guard]
        seed = load_own(builder, adjoint, stage, stage.dtype.compute)
        pending: dict[int, list[Adjoint]] = {result: self._seed(stage, builder, seed, result)}
        body = Body(tuple(builder.instructions[:count]), result)
        moving = find_moving(body, self.moving, stage.span)
        signs = self.signs.find(body)
        for value in range(count - 1, -1, -1):
            if not moving[value] or value not in pending:
                continue
            instruction = builder.instructions[value]
            total = add_adjoints(builder, pending.pop(value), instruction)
            if isinstance(instruction, Load):
                self._read_back(stage, builder, instruction, total, guard)
                continue
            for operand, part in self._spread(stage, builder, value, total, moving, signs):
                if moving[operand]:
                    pending.setdefault(operand, []).append(part)

    def _seed(self, stage: Stage, builder: BodyBuilder, seed: int, result: int) -> list[Adjoint]:
        """Adjoint of one point's value in a reduction, from the adjoint of the result."""
        if stage.reduction is None:
            return [Adjoint(seed)]
        combiner = stage.reduction.record
        match combiner.adjoint:
            case AdjointRule.FIRST:
                # Linear index of the smallest or largest point.
                points = math.prod(e if isinstance(e, int) else math.inf for _, e in stage.axes)
                found = dataclasses.replace(
                    stage,
                    name=take_name(f"{stage.name}_first", self.taken),
                    dtype=DataType.INT32 if points < 2**31 else DataType.INT64,
                    reduction=Reduction(combiner.position, stage.axes),
                )
                self.made.append(found)
                place = builder.add(Cast(builder.read(found), DataType.INDEX))
                own = number_point(builder, stage)
                text = f"{combiner.name} over an axis moves with the first index that has it"
                self.choices[Choice(text, stage.span)] = None
                return [Adjoint(seed, ((builder.apply("eq", own, place), True),))]
            case AdjointRule.OTHERS:
                return self._seed_product(stage, builder, seed, result)
            case _:
                return [Adjoint(seed)]

    def _seed_product(
        self, stage: Stage, builder: BodyBuilder, seed: int, result: int
    ) -> list[Adjoint]:
        """Adjoint of a factor of a product: the product divided by it if no factor is 0; the
        product of the others if it alone is 0."""
        dtype, body = stage.dtype.compute, stage.body
        own = BodyBuilder()
        numbers = own.copy(body)
        factor = numbers[body.result]
        zero = own.add(Constant(dtype, 0.0))
        guard = [] if body.guard is None else [numbers[body.guard]]
        is_zero = own.join([*guard, own.apply("eq", factor, zero)])
        one = own.add(Constant(DataType.INT32, 1))
        zeros = dataclasses.replace(
            stage,
            name=take_name(f"{stage.name}_zeros", self.taken),
            dtype=DataType.INT32,
            body=own.make(one, is_zero),
            reduction=Reduction("sum", stage.axes),
        )
        others = dataclasses.replace(
            stage,
            name=take_name(f"{stage.name}_others", self.taken),
            dtype=dtype,
            body=own.make(factor, own.join([*guard, own.apply("ne", factor, zero)])),
        )
        self.made += [zeros, others]
        count = builder.read(zeros)
        product = builder.apply("mul", seed, builder.read(others))
        none = builder.apply("eq", count, builder.constant(0, DataType.INT32))
        single = builder.apply("eq", count, builder.constant(1, DataType.INT32))
        own_zero = builder.apply("eq", result, builder.add(Constant(dtype, 0.0)))
        # The quotient is not used where the factor is 0. It must be finite all the same: in a sum
        # of quotients by one divisor, the division may be moved out of the sum.
        divisor = builder.select(own_zero, builder.add(Constant(dtype, 1.0)), result)
        return [
            Adjoint(builder.apply("div", product, divisor), ((none, True),)),
            Adjoint(product, ((none, False), (single, True), (own_zero, True))),
        ]

    def _spread(
        self,
        stage: Stage,
        builder: BodyBuilder,
        value: int,
        total: Adjoint,
        moving: Sequence[bool],
        signs: Sequence[Sign],
    ) -> Iterable[tuple[int, Adjoint]]:
        """Adjoints of the operands of a value."""
        instruction = builder.instructions[value]
        match instruction:
            case Apply(operands=given):
                flags = tuple(moving[operand] for operand in given)
                ending = signs[given[0]] is Sign.NOT_NEGATIVE
                kink = find_kink(instruction, flags, ending)
                if kink is not None:
                    self.choices[Choice(kink, stage.span)] = None
                for operand, part in spread(builder, value, total.value, flags, ending):
                    yield operand, part.under(total.conditions)
            case Select(condition=condition, then=then, otherwise=otherwise):
                yield then, total.under(((condition, True),))
                yield otherwise, total.under(((condition, False),))
            case Cast(operand=operand):
                dtype = value_type(builder.instructions[operand])
                yield operand, Adjoint(builder.add(Cast(total.value, dtype)), total.conditions)
            case _:
                pass

    def _read_back(
        self, stage: Stage, builder: BodyBuilder, load: Load, total: Adjoint, guard: int | None
    ) -> None:
        """Adds a contribution to the adjoint of a tensor: the sum over the points that load an
        element."""
        tensor = self.tensors[load.tensor]
        body = Body(tuple(builder.instructions), total.value)
        reader = dataclasses.replace(stage, body=body)
        chosen: list[tuple[int, bool]] = []
        for condition, holds in ((guard, True), *total.conditions):
            joined = part_conditions(body.instructions, condition)[1] if holds else (condition,)
            chosen += [(c, holds) for c in joined if c is not None and (c, holds) not in chosen]
        made = BodyBuilder()
        readers = find_readers(reader, load, tensor.extents, chosen, made)
        wanted = [total.value, *(c for c, _ in chosen), *(number for _, number in readers.left)]
        needed = {*readers.positions, *reach_back(body.instructions, wanted, readers.positions)}
        numbers = made.copy(body, readers.positions, needed=needed)
        conditions = list(readers.conditions)
        for axis, number in readers.left:
            conditions.append(made.apply("eq", numbers[number], made.add(Index(axis))))
        value = numbers[total.value]
        placed = find_index_only(body)
        for condition, holds in chosen:
            held = numbers[condition] if holds else made.apply("not", numbers[condition])
            if placed[condition] or not readers.axes:
                conditions.append(held)
            else:
                # Conditions on elements do not bound a sum.
                value = choose(made, [(held, True)], value)
        conditions = drop_certain(made, conditions, tensor.extents, readers.axes)
        if readers.axes:
            part = made.make(value, made.join(conditions))
        else:
            part = made.make(choose(made, [(c, True) for c in conditions], value))
        self.parts.setdefault(load.tensor, []).append(_Term(part, readers.axes, stage.span))

    # The function -------------------------------------------------------------------------

    def finish(self) -> Gradient:
        function, results = self.function, [self.names[name] for name in self.wrt]
        forward = [self.copies.get(stage.name, stage) for stage in function.stages]
        stages = [redirect_loads(s, self.kept) for s in (*forward, *self.made)]
        live = list_live(stages, results, self.adjoints.loops)
        read = {load.tensor for stage in live for load in stage.body.loads()}
        parameters = {p.name: p for p in function.parameters}
        for names in (self.kept, self.given):
            for name, own in names.items():
                tensor = self.tensors[name]
                parameters[own] = Parameter(own, tensor.dtype, tensor.extents, None, tensor.span)
        made = dataclasses.replace(
            function,
            name=f"{function.name}_gradient",
            parameters=_list_needed(tuple(parameters.values()), live, read),
            stages=live,
            results=tuple(Result(name) for name in results),
            in_place=(),
            tables=tuple(t for t in function.tables if t.name in read),
        )
        made = made.with_stages(clamp_reads(made, made.stages))
        verify(made, "differentiate", function)
        made = close_loops(made, self.adjoints, self.taken)
        verify(made, "close_loops")
        return Gradient(made, tuple(self.vanishing), tuple(self.choices))


def _list_needed(
    parameters: Sequence[Parameter], stages: Sequence[Stage], read: Iterable[str]
) -> tuple[Parameter, ...]:
    """Parameters that are read, and those that determine an open size. Values that are kept
    determine a size before values that must be recomputed, and come last."""
    needed = {p.name: p for p in parameters if p.name in set(read)}
    said = {e for p in needed.values() for e in p.extents}
    extents = [e for s in stages for e in s.extents] + [e for s in stages for _, e in s.axes]
    extents += [e for p in needed.values() for e in p.extents]
    extents += [i.name for s in stages for i in s.body.instructions if isinstance(i, Symbol)]
    for symbol in find_symbols(extents):
        having = [p for p in parameters if symbol in p.extents]
        if symbol not in said and having:
            needed[having[-1].name] = having[-1]
            said.update(having[-1].extents)
    return tuple(p for p in parameters if p.name in needed)


def _count_elements(tensor: Parameter | Stage) -> float:
    return math.prod(e if isinstance(e, int) else math.inf for e in tensor.extents)
