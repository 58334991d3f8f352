"""Data types and sizes of a call's outputs, as far as tables and constraints determine them.

The binder infers them, to which symbols are open sizes. Those that a formula determines are known
when the graph is bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.binding import TensorDesc
from dmlc.binding.infer import spread_sizes
from dmlc.binding.operator import Description, expand_arrays
from dmlc.binding.resolve import begin
from dmlc.binding.tensors import Described
from dmlc.language.definitions import OperatorDefinition
from dmlc.source import Diagnostic, DmlcError


def infer_call(
    operator: OperatorDefinition,
    given: Mapping[str, Described | Sequence[Described]],
    attributes: Mapping[str, object],
) -> Mapping[str, Described]:
    """Tensors of a call by name, outputs included, as far as the `given` ones determine them; no
    types if one of these is unknown. Empty for a wrong call: the error is reported when the graph
    is built."""
    diagnostics: list[Diagnostic] = []
    listed = {name: [one] if isinstance(one, Described) else one for name, one in given.items()}
    typed = all(one.dtype is not None for each in listed.values() for one in each)
    try:
        described = {
            name: _describe(one) if isinstance(one, Described) else [*map(_describe, one)]
            for name, one in given.items()
        }
        known, table = expand_arrays(operator.newest, described, diagnostics)
        outputs = [tensor.name for tensor in table.tensors if tensor.output]
        call = begin(operator, table, known, attributes, outputs, diagnostics, inferred=True)
        tensors = spread_sizes(call).tensors
    except DmlcError:
        return {}
    return {name: Described(t.dtype if typed else None, t.sizes) for name, t in tensors.items()}


def _describe(given: Described) -> Description | None:
    return given.sizes if given.dtype is None else TensorDesc(given.dtype, given.sizes)
