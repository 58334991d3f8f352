"""Inference of the data types and sizes that a binding does not give.

Sentences (`must have the same Sizes`), the `Dimensions` column and the `types` table come first,
then what a `require` says about an output's sizes, then the sizes that `compute` gives to outputs.
A data type that is still unknown is, for an output, the first input's if that is permitted, and
otherwise the first permitted one; a type that breaks a `require` is not permitted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from dmlc.binding.compute import infer_outputs
from dmlc.binding.constraints import check_requirement, check_shapes, holds
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding, BoundTensor, match_dimensions, name_sizes
from dmlc.binding.nodes import Shape
from dmlc.binding.tensors import MAXIMUM_RANK, refuse_excess
from dmlc.binding.values import Constant, OpenSize, expect_extent, show, whole_number
from dmlc.ir import Extent
from dmlc.language import syntax
from dmlc.language.definitions import Dimension, OperatorDefinition, TensorDefinition, mistake
from dmlc.language.walk import subexpressions
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, DmlcError, Span


def infer_types(binding: Binding) -> Binding:
    """Binding with every data type: the one that the constraints imply, or else the first
    permitted."""
    tensors = dict(binding.tensors)
    while True:
        _spread_types(binding, tensors)
        open_tensor = next((t for t in tensors.values() if t.dtype is None), None)
        if open_tensor is None:
            absent = {
                n: _list_absent(binding, tensors, t)
                for n, t in binding.definitions.items()
                if n not in tensors and not t.output
            }
            return dataclasses.replace(binding, tensors=tensors, absent=absent)
        choices = _choices(binding, tensors, open_tensor)
        inputs = [t.dtype for t in tensors.values() if not t.definition.output]
        alike = [t for t in inputs if t in choices] if open_tensor.definition.output else []
        dtype = (*alike, *choices)[0]
        tensors[open_tensor.name] = dataclasses.replace(open_tensor, dtype=dtype)


def _list_absent(
    binding: Binding, tensors: dict[str, BoundTensor], definition: TensorDefinition
) -> tuple[DataType, ...]:
    """Types that an absent optional tensor might have, given the others."""
    probe = BoundTensor(definition, None, None, None, False)
    joined = {**tensors, definition.name: probe}
    binding = dataclasses.replace(binding, tensors=joined)
    _spread_types(binding, joined)
    dtype = joined[definition.name].dtype
    return (dtype,) if dtype is not None else _choices(binding, joined, probe)


def _find_fixed_point(
    tensors: dict[str, BoundTensor], find: Callable[[BoundTensor], BoundTensor]
) -> None:
    """Replaces each tensor by `find` of it, until nothing changes."""
    changed = True
    while changed:
        found = [find(tensor) for tensor in tensors.values()]
        changed = any(tensor is not tensors[tensor.name] for tensor in found)
        tensors.update({tensor.name: tensor for tensor in found})


def _list_grouped(
    tensors: dict[str, BoundTensor], groups: list[list[str]], tensor: BoundTensor
) -> list[BoundTensor]:
    """Tensors in a common group with this one."""
    names = [n for group in groups if tensor.name in group for n in group]
    return [tensors[n] for n in names if n in tensors]


def _spread_types(binding: Binding, tensors: dict[str, BoundTensor]) -> None:
    """Propagates known data types to every tensor that must have the same one."""
    groups = _same(binding, "DataType")

    def find(tensor: BoundTensor) -> BoundTensor:
        known = (t.dtype for t in _list_grouped(tensors, groups, tensor) if t.dtype is not None)
        dtype = next(known, None) if tensor.dtype is None else None
        return tensor if dtype is None else dataclasses.replace(tensor, dtype=dtype)

    _find_fixed_point(tensors, find)


def _choices(
    binding: Binding, tensors: dict[str, BoundTensor], tensor: BoundTensor
) -> tuple[DataType, ...]:
    """Types that a tensor of unknown type may have, given the known ones, in table order."""
    operator = binding.operator
    permitted = _list_permitted(operator, tensor.definition)
    for group in _same(binding, "DataType"):
        if tensor.name in group:
            rows = [_list_permitted(operator, tensors[n].definition) for n in group if n in tensors]
            permitted = tuple(t for t in permitted if all(t in row for row in rows)) or permitted
    known = {t.definition.row: t.dtype for t in tensors.values() if t.dtype is not None}
    listed: dict[DataType, None] = {}
    for combination in binding.operator.combinations:
        types = combination.types
        if all(dtype in types.get(name, (dtype,)) for name, dtype in known.items()):
            listed.update(dict.fromkeys(types.get(tensor.definition.row, permitted)))
    narrowed = tuple(t for t in listed if t in permitted)
    choices = narrowed or permitted or (DataType.FLOAT32,)
    return tuple(t for t in choices if _may_be(binding, tensors, tensor, t)) or choices


def _list_permitted(operator: OperatorDefinition, tensor: TensorDefinition) -> tuple[DataType, ...]:
    """Types that a table permits, restricted to those of the forward tensor that this one stands
    for, if any."""
    gradient = operator.gradient
    if gradient is None:
        return tensor.dtypes
    permitted: tuple[DataType, ...] = tensor.dtypes
    for theirs in gradient.forward.newest.tensors:
        if tensor.row in gradient.rows(theirs.name):
            allowed = _list_permitted(gradient.forward, theirs)
            permitted = tuple(t for t in permitted if t in allowed) or permitted
    return permitted


def _may_be(
    binding: Binding, tensors: dict[str, BoundTensor], tensor: BoundTensor, dtype: DataType
) -> bool:
    """Whether no `require` on data types refuses this one, as far as decidable now."""
    tried = {**tensors, tensor.name: dataclasses.replace(tensor, dtype=dtype)}
    evaluator = _try_tensors(binding, tried)
    for requirement in binding.operator.requirements:
        if not _reads_type(requirement, tensor.name):
            continue
        try:
            if not holds(evaluator.constant(requirement.condition)):
                return False
        except DmlcError:
            continue  # It asks for something that is not known yet, and is checked in the end.
    return True


def _try_tensors(binding: Binding, tensors: dict[str, BoundTensor]) -> Evaluator:
    """Evaluator of constraints on incomplete bindings. Its assumptions about open sizes are
    dropped, since every constraint is checked again after the inference."""
    return Evaluator(dataclasses.replace(binding, tensors=tensors, checks={}))


def _reads_type(constraint: syntax.Require, name: str) -> bool:
    return any(
        isinstance(part, syntax.Member)
        and part.member.text == "DataType"
        and isinstance(part.base, syntax.Reference)
        and part.base.name == name
        for part in subexpressions(constraint.condition)
    )


def _same(binding: Binding, fact: str) -> list[list[str]]:
    """Groups of tensors with the same value of a fact, from the sentences; also from the forward
    operator's, for its tensors and their gradients."""
    said = same_rows(binding.operator, fact)
    groups = [[t.name for row in group for t in binding.members(row)] for group in said]
    gradient = binding.operator.gradient
    if gradient is None:
        return groups
    for tensor in gradient.forward.newest.tensors:
        members = [binding.members(row) for row in gradient.rows(tensor.name)]
        groups += [[t.name for t in pair] for pair in zip(*members, strict=False)]
    return groups


def same_rows(operator: OperatorDefinition, fact: str) -> list[list[str]]:
    """Groups of table rows with the same value of a fact, from the sentences."""
    groups = [
        [s.text for s in c.subjects]
        for c in operator.sentences("same")
        if any(o.text == fact for o in c.objects)
    ]
    gradient = operator.gradient
    if gradient is None:
        return groups
    theirs = same_rows(gradient.forward, fact)
    return groups + [[row for name in group for row in gradient.rows(name)] for group in theirs]


def spread_sizes(binding: Binding) -> Binding:
    """Binding with the sizes that the constraints imply."""
    tensors = dict(binding.tensors)
    _spread_sizes(binding, tensors)
    while _solve_requirements(binding, tensors):
        _spread_sizes(binding, tensors)
    return dataclasses.replace(binding, tensors=tensors)


def infer_sizes(
    binding: Binding,
    diagnostics: list[Diagnostic],
    infer: Callable[[Binding, Sequence[str]], Mapping[str, Shape]] = infer_outputs,
) -> Binding:
    """Binding with the sizes of every output: those given, those that the constraints imply, and
    those that `infer` finds. Adds a diagnostic for each output that stays unknown. Raises
    `DmlcError` for an error that prevents the inference."""
    found = spread_sizes(binding)
    tensors = dict(found.tensors)
    wanted = [t.name for t in tensors.values() if t.sizes is None]
    if not wanted:
        return found
    check_shapes(found, diagnostics)
    if diagnostics:
        return found
    try:
        computed = infer(found, wanted)
    except DmlcError:
        broken = _list_broken(found)
        if broken:
            raise DmlcError(broken) from None
        raise
    for name in wanted:
        shape = computed.get(name)
        if shape is None:
            message = f"the sizes of output '{name}' cannot be inferred: give its description"
            diagnostics.append(mistake(tensors[name].definition, message, code="E0805"))
        else:
            refuse_excess(f"output '{name}'", shape, tensors[name].definition.span)
            tensors[name] = dataclasses.replace(tensors[name], sizes=shape)
    return dataclasses.replace(binding, tensors=tensors)


def _list_broken(binding: Binding) -> list[Diagnostic]:
    """Diagnostics of every `require` that fails for all values of the unknowns. Its own message is
    clearer than the error of a formula."""
    diagnostics: list[Diagnostic] = []
    evaluator = _try_tensors(binding, dict(binding.tensors))
    for requirement in binding.operator.requirements:
        try:
            holding = holds(evaluator.constant(requirement.condition))
        except DmlcError:
            continue  # It asks for something that is not known yet.
        if not holding:
            check_requirement(binding, requirement, diagnostics)
    return diagnostics


def _solve_requirements(binding: Binding, tensors: dict[str, BoundTensor]) -> bool:
    """Sets sizes of outputs from a `require`: `T.Sizes == e`, an upper bound, `all(T.Sizes <= e)`,
    or the first alternative, `all(T.Sizes == e) || c`. Returns whether any was set."""
    evaluator = _try_tensors(binding, tensors)
    solved = False
    for requirement in binding.operator.requirements:
        for name, other in list_equations(evaluator, requirement.condition):
            tensor = tensors.get(name)
            if tensor is None or tensor.sizes is not None or not tensor.definition.output:
                continue
            try:
                value = evaluator.constant(other)
            except DmlcError:
                continue  # It asks for something that is not known yet.
            sizes = _read_sizes(value, name, other.span)
            if sizes is not None:
                tensors[name] = dataclasses.replace(tensor, sizes=sizes)
                solved = True
    return solved


def list_equations(
    evaluator: Evaluator, condition: syntax.Expression
) -> list[tuple[str, syntax.Expression]]:
    """Tensors whose sizes a condition states, with the expressions for them."""
    found: list[tuple[str, syntax.Expression]] = []
    pending = [condition]
    while pending:
        match pending.pop():
            case syntax.Binary(operator="&&", left=left, right=right):
                pending += [right, left]
            case syntax.Binary(operator="||", left=first):
                pending.append(first)
            case syntax.Binary(operator="==", left=left, right=right):
                for side, other in ((left, right), (right, left)):
                    name = _sized_tensor(side)
                    if name is not None:
                        found.append((name, other))
            case syntax.Call(function=syntax.Reference(name="all"), arguments=arguments):
                match arguments[0].value:
                    case syntax.Binary(operator="<=", left=left, right=right):
                        name = _sized_tensor(left)
                        if name is not None:
                            found.append((name, right))
                    case value:
                        pending.append(value)
            case syntax.Ternary(condition=choice, then=then, otherwise=otherwise):
                try:
                    pending.append(then if evaluator.constant(choice) is True else otherwise)
                except DmlcError:
                    continue  # What it depends on is not known yet.
            case _:
                continue
    return found


def _sized_tensor(expression: syntax.Expression) -> str | None:
    """Tensor whose `Sizes` an expression is, or None."""
    match expression:
        case syntax.Member(base=syntax.Reference(name=name), member=syntax.Name(text="Sizes")):
            return name
        case _:
            return None


def _read_sizes(value: Constant, name: str, span: Span) -> tuple[Extent, ...] | None:
    """Value as sizes; None if it is no array. Raises `DmlcError` for sizes that no tensor has."""
    if not isinstance(value, tuple):
        return None
    what = f"a size of output '{name}'"
    sizes = [
        expect_extent(v, what, span) if isinstance(v, OpenSize) else whole_number(v) for v in value
    ]
    if (
        any(s is None or (isinstance(s, int) and s < 0) for s in sizes)
        or not 1 <= len(sizes) <= MAXIMUM_RANK
    ):
        raise DmlcError(
            f"the sizes of output '{name}' come to {show(value)}, which no tensor has",
            span,
            code="E0409",
        )
    whole = tuple(s for s in sizes if s is not None)
    refuse_excess(f"output '{name}'", whole, span)
    return whole


def _list_taken(
    definition: TensorDefinition, named: Mapping[str, Extent]
) -> tuple[Dimension, ...] | None:
    """Dimensions of a tensor without a description, from names with known sizes. An output has the
    optional dimensions that other tensors have. None for an input, which may have any of them."""
    pattern = definition.dimensions
    optional = [d for d in pattern or () if d.optional]
    if pattern is None or (optional and not definition.output):
        return None
    spare = next((k for k, d in enumerate(optional) if d.name in named), len(optional))
    return match_dimensions(pattern, len(pattern) - spare)


def _spread_sizes(binding: Binding, tensors: dict[str, BoundTensor]) -> None:
    """Propagates known shapes to the tensors whose shape the constraints equate with them."""
    groups = _same(binding, "Sizes")
    shapes: dict[str, list[str]] = {}
    for tensor in tensors.values():
        if tensor.definition.shape_name is not None:
            shapes.setdefault(tensor.definition.shape_name, []).append(tensor.name)
    groups += shapes.values()
    scalars = [s.text for c in binding.operator.sentences("scalar") for s in c.subjects]

    def find(tensor: BoundTensor) -> BoundTensor:
        if tensor.sizes is not None:
            return tensor
        known = (t.sizes for t in _list_grouped(tensors, groups, tensor) if t.sizes is not None)
        sizes = next(known, None)
        named = name_sizes(tensors.values())
        pattern = _list_taken(tensor.definition, named)
        if sizes is None and pattern is not None:
            given = [d.size if d.name is None else named.get(d.name) for d in pattern]
            whole = tuple(g for g in given if g is not None)
            refuse_excess(f"tensor '{tensor.name}'", whole, tensor.definition.span)
            sizes = whole if len(whole) == len(pattern) else None
        if sizes is None and tensor.name in scalars and len(tensor.definition.ranks) == 1:
            sizes = (1,) * tensor.definition.ranks[0]
        return tensor if sizes is None else dataclasses.replace(tensor, sizes=sizes)

    _find_fixed_point(tensors, find)
