"""Resolution of a binding: the tensors present, their types and sizes, the attributes' values.

An operator with `gradient of` is derived from a binding of its forward operator. A tensor of that
binding has the type and the sizes of the row that holds its value, or its gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.binding.attributes import complete_attributes, given_attributes, list_opened
from dmlc.binding.call_errors import explain_at, raise_mistakes
from dmlc.binding.compute import infer_outputs
from dmlc.binding.constraints import check_constraints, check_tensor
from dmlc.binding.facts import Binding, BoundTensor
from dmlc.binding.infer import infer_sizes, infer_types, spread_sizes
from dmlc.binding.nodes import Shape
from dmlc.binding.tensors import MAXIMUM_RANK, Described, show_sizes
from dmlc.language.definitions import (
    GradientDefinition,
    OperatorDefinition,
    TensorDefinition,
    TensorLevel,
    mistake,
)
from dmlc.source import Diagnostic, DmlcError, Note, unknown_name


def resolve(
    definition: OperatorDefinition,
    table: TensorLevel,
    given: Mapping[str, Described],
    attributes: Mapping[str, object],
    computed: Sequence[str],
    diagnostics: list[Diagnostic],
    level: str | None = None,
) -> Binding:
    """Binding with every tensor's type and sizes and every attribute's value, checked against the
    constraints. Optional outputs in `computed` are present without a description, as are all
    outputs if all are optional and none is described, except those of a gradient, whose forward
    tensors may be absent. Raises `DmlcError` with `diagnostics` and every further error."""
    binding = begin(definition, table, given, attributes, computed, diagnostics)
    return _resolve_sizes(dataclasses.replace(binding, level=level))


def begin(
    definition: OperatorDefinition,
    table: TensorLevel,
    given: Mapping[str, Described],
    attributes: Mapping[str, object],
    computed: Sequence[str],
    diagnostics: list[Diagnostic],
    inferred: bool = False,
) -> Binding:
    """Unchecked binding with every data type and attribute; if `inferred`, inputs may lack
    sizes."""
    definition.expect_formula()
    binding = _start(definition, table, given, attributes, computed, diagnostics, inferred)
    refused = set(attributes) - set(binding.attributes)
    if not diagnostics:
        binding = infer_types(binding)
    completed = complete_attributes(binding, refused, diagnostics)
    raise_mistakes(diagnostics)
    return dataclasses.replace(binding, attributes=completed)


def _resolve_sizes(binding: Binding) -> Binding:
    """Binding with every size, checked against the constraints."""
    diagnostics: list[Diagnostic] = []
    gradient = binding.operator.gradient
    if binding.symbolic:
        _check_symbolic(binding)
    else:
        infer = infer_outputs if gradient is None else _infer_gradients
        binding = infer_sizes(binding, diagnostics, infer)
        raise_mistakes(diagnostics)
        for tensor in binding.tensors.values():
            check_tensor(tensor, diagnostics)
    check_constraints(binding, diagnostics)
    raise_mistakes(diagnostics)
    if gradient is None:
        return binding
    try:
        forward = _begin_forward(binding, gradient)
        if not forward.symbolic:
            forward = spread_sizes(forward)
            _check_inputs(forward)
        forward = _resolve_sizes(forward)
    except DmlcError as error:
        raise _explain(error, gradient, binding) from None
    return dataclasses.replace(binding, forward=forward)


def _start(
    definition: OperatorDefinition,
    table: TensorLevel,
    given: Mapping[str, Described],
    attributes: Mapping[str, object],
    computed: Sequence[str],
    diagnostics: list[Diagnostic],
    inferred: bool,
) -> Binding:
    """Tensors present, with the caller's descriptions."""
    definitions = {t.name: t for t in table.tensors}
    diagnostics += [
        unknown_name("tensor", name, definitions) for name in given if name not in definitions
    ]
    symbolic = all(found.sizes is None for found in given.values())
    outputs = [tensor for tensor in table.tensors if tensor.output]
    undecided = all(t.optional and t.name not in given for t in outputs)
    if undecided and definition.gradient is None and not inferred:
        computed = [t.name for t in outputs]
    bound: dict[str, BoundTensor] = {}
    for tensor in table.tensors:
        name, found = tensor.name, given.get(tensor.name)
        if found is None and tensor.optional and name not in computed:
            continue
        expected = not (inferred or symbolic or tensor.output)
        if expected and (found is None or found.sizes is None):
            message = f"required tensor '{name}' is not given"
            if found is not None:
                message = f"input '{name}' has no sizes, but other tensors have"
            diagnostics.append(mistake(tensor, message, code="E0805"))
        known = Described() if found is None else found
        bound[name] = BoundTensor(
            tensor, known.dtype, known.sizes, known.strides, found is not None
        )
        check_tensor(bound[name], diagnostics)
    values = given_attributes(definition, attributes, diagnostics)
    opened = list_opened(definition, attributes, diagnostics)
    return Binding(definition, bound, values, definitions, symbolic, opened=opened)


def _check_symbolic(binding: Binding) -> None:
    """Raises `DmlcError` for a binding without sizes unless the tables equate all shapes."""
    operator = binding.operator
    patterns = {t.definition.dimensions for t in binding.tensors.values()}
    fixed = any(d.size is not None for p in patterns if p is not None for d in p)
    ranks = frozenset(range(1, MAXIMUM_RANK + 1))
    for tensor in binding.tensors.values():
        ranks &= frozenset(tensor.definition.ranks)
    no_input = all(t.definition.output for t in binding.tensors.values())
    scalars = operator.sentences("scalar")
    about = (c for c in scalars if any(s.text in binding.tensors for s in c.subjects))
    scalar = next(about, None)
    if len(patterns) > 1 or fixed or not ranks or no_input or scalar is not None:
        raise DmlcError(
            f"'{operator.name}' needs the sizes of its tensors: they are not all the same",
            None if scalar is None else scalar.span,
            ["give a description with sizes for each input"],
            code="E0805",
        )


# Forward operators ----------------------------------------------------------------------------


def _infer_gradients(binding: Binding, wanted: Sequence[str]) -> Mapping[str, Shape]:
    """Sizes of gradients: those that the forward operator's constraints give its inputs."""
    gradient = binding.operator.gradient
    if gradient is None:
        return {}
    try:
        found = spread_sizes(_begin_forward(binding, gradient)).tensors
    except DmlcError as error:
        raise _explain(error, gradient, binding) from None
    sizes: dict[str, Shape] = {}
    for name, tensor in found.items():
        row = gradient.gradients.get(tensor.definition.row)
        if row is not None:
            sizes[name.replace(tensor.definition.row, row, 1)] = tensor.sizes
    return sizes


def _begin_forward(binding: Binding, gradient: GradientDefinition) -> Binding:
    """Binding of the forward operator from what is known of the gradient's tensors."""
    given: dict[str, Described] = {}
    diagnostics: list[Diagnostic] = []
    rows: list[TensorDefinition] = []
    for tensor in gradient.forward.newest.tensors:
        standing = [binding.members(row) for row in gradient.rows(tensor.name)]
        count = max((len(members) for members in standing), default=0)
        rows += [tensor.entry(number) for number in range(count)] if tensor.array else [tensor]
        for number in range(count):
            name = tensor.entry(number).name if tensor.array else tensor.name
            own = [members[number] for members in standing if number < len(members)]
            # A gradient is laid out in a way of its own.
            strides = own[0].strides if own[0].definition.row in gradient.values.values() else None
            given[name] = dataclasses.replace(_describe(own, diagnostics), strides=strides)
    attributes = {
        theirs: binding.attributes[own]
        for theirs, own in gradient.attributes.items()
        if own in binding.attributes
    }
    raise_mistakes(diagnostics)
    table = TensorLevel(gradient.forward.newest.level, tuple(rows))
    return begin(gradient.forward, table, given, attributes, (), diagnostics, inferred=True)


def _check_inputs(forward: Binding) -> None:
    """Raises `DmlcError` for a forward input whose sizes no tensor of the gradient determines."""
    diagnostics: list[Diagnostic] = []
    for tensor in forward.tensors.values():
        if tensor.sizes is None and not tensor.definition.output:
            name = tensor.name
            message = f"the sizes of '{name}' follow from no tensor that is given"
            cure = Note(f"it is derived for known sizes: have an input '{name}' in the table too")
            diagnostics.append(mistake(tensor.definition, message, cure, code="E0805"))
    raise_mistakes(diagnostics)


def _describe(tensors: Sequence[BoundTensor], diagnostics: list[Diagnostic]) -> Described:
    """Type and sizes that a tensor and its gradient have together."""
    first = tensors[0]
    for other in tensors[1:]:
        for what, one, two in (
            ("DataType", first.dtype, other.dtype),
            ("Sizes", first.sizes, other.sizes),
        ):
            if one is not None and two is not None and one != two:
                message = (
                    f"'{first.name}' and '{other.name}' are a tensor and its gradient, and must "
                    f"have the same {what}"
                )
                shown = Note(f"{first.name} has {_show(first, what)} and {other.name} "
                             f"{_show(other, what)}")  # fmt: skip
                diagnostics.append(mistake(other.definition, message, shown, code="E0803"))
    dtype = next((t.dtype for t in tensors if t.dtype is not None), None)
    sizes = next((t.sizes for t in tensors if t.sizes is not None), None)
    return Described(dtype, sizes)


def _show(tensor: BoundTensor, what: str) -> str:
    if what == "Sizes":
        return show_sizes(tensor.sizes or ())
    return "?" if tensor.dtype is None else tensor.dtype.name


def _explain(error: DmlcError, gradient: GradientDefinition, binding: Binding) -> DmlcError:
    """Error of the forward operator, relocated to the row of the gradient that is wrong."""
    rows = {n: [*gradient.rows(n)] for n in (*gradient.gradients, *gradient.values)}
    places = {n: binding.definitions[r[0]].span for n, r in rows.items()
              if r[0] in binding.definitions}  # fmt: skip
    return explain_at(error, gradient.forward, gradient.span, places)
