"""A bound function with data and expected results, to be run on machines of other people.

The exports to tools that run shaders (`dxdispatch`, `offload`) are made of a proof: a case of the
harness, or a function with data drawn for it. Its arrays are laid out here as the program's buffers
hold them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from dmlc.binding import Graph, Operator, TensorDesc, ir_name
from dmlc.binding.values import Constant
from dmlc.ir import Function, fixed_strides
from dmlc.oracle import find_expected
from dmlc.pipeline import compile
from dmlc.program import Program, TensorSpec
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError, InternalError, UnsupportedError
from dmlc.testing.bounds import bound_errors
from dmlc.testing.case import Call, Case, find_wanted, lay_out
from dmlc.testing.differences import find_all_concerned
from dmlc.testing.examples import read_cases
from dmlc.testing.fill import draw_values

WORD_BYTES = 4
"""Buffers hold whole words."""
_GIVE_SIZES = "give the sizes of its tensors, --tensor NAME=FLOAT32[2,3]"
_DRAWS = 8
"""How often values are drawn at most, for some that nobody disagrees on."""
Concerned: TypeAlias = Mapping[str, Mapping[str, Array]]
_UNWRITTEN = 0x5A
"""The bytes of an integer that no kernel has written."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """Function with the elements of its inputs, and the expected results with their tolerances, by
    the function's names."""

    title: str
    """A few words that say where the data come from."""
    function: Function
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    """Each result, in its own type."""
    allowed: Mapping[str, Array]
    """The largest difference that each element may have: see `testing.bounds`."""
    operator: Operator | None = None
    """What the function was bound from; None of a graph."""
    attributes: Mapping[str, Constant] = dataclasses.field(default_factory=dict[str, Constant])
    """All the operator's attributes, as they were resolved."""
    concerned: Concerned = dataclasses.field(default_factory=dict[str, Mapping[str, Array]])
    """By the title of each section `differs` of the operator, the elements of its results that
    others may give otherwise."""

    def __post_init__(self) -> None:
        for name, array in {**self.inputs, **self.expected}.items():
            if array.size == 0:
                raise UnsupportedError(f"'{name}' is empty: there is nothing to dispatch")

    @staticmethod
    def of_case(case: Case) -> Proof:
        """Proof of a case. Raises as binding does, and if an output cannot hold the values that an
        example expects."""
        call, wanted = case.call, find_wanted(case)
        return Proof(
            case.title,
            call.function,
            case.given,
            {ir_name(name): array for name, array in wanted.expected.items()},
            {ir_name(n): _replace_nan(a, wanted.expected[n]) for n, a in wanted.allowed.items()},
            call.operator,
            call.binding.attributes,
            _find_concerned(call, case.inputs),
        )


def _find_concerned(call: Call, inputs: Mapping[str, Array]) -> Concerned:
    return {
        title: {ir_name(name): elements for name, elements in found.items()}
        for title, found in find_all_concerned(call, inputs).items()
    }


def _replace_nan(allowed: Array, expected: Array) -> Array:
    """Tolerances without NaN: 0 for expected NaN and infinities, which must match exactly; infinity
    for an unknown tolerance of any other value."""
    finite = np.isfinite(expected.astype(np.float64))
    return np.where(np.isnan(allowed), np.where(finite, np.inf, 0.0), allowed)


def find_example(operator: Operator, shader_model: str | None = None) -> Proof:
    """Proof of an operator's first example, in the first of its data types that HLSL has. Raises
    `DmlcError` if there is none."""
    refused: DmlcError | None = None
    for case in _read_first_example(operator):
        try:
            compile(case.call.function, "hlsl", shader_model=shader_model)
        except DmlcError as error:
            refused = refused or error
            continue
        return Proof.of_case(case)
    raise refused or DmlcError(
        f"{operator.name} has no example, and so no data",
        notes=[f"{_GIVE_SIZES}, and data are drawn"],
    )


def find_function(operator: Operator) -> Function:
    """Function of an operator's first example, in the first of its data types. Raises `DmlcError`
    if it has no example."""
    for case in _read_first_example(operator):
        return case.call.function
    raise DmlcError(f"{operator.name} has no example", notes=[_GIVE_SIZES])


def _read_first_example(operator: Operator) -> Iterator[Case]:
    for example in operator.definition.examples[:1]:
        yield from read_cases(operator, example)


def prove(
    subject: Operator | Graph,
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, object],
    *,
    dims: Mapping[str, int] | None = None,
    arrays: Mapping[str, Array] | None = None,
    seed: int = 0,
) -> Proof:
    """Proof of an operator with these tensors and attributes, or of a graph with these symbols.
    Inputs without an array get drawn values, which requires their sizes. Raises `DmlcError` without
    them, and the errors of binding."""
    tensors = dict(tensors)
    for name, array in (arrays or {}).items():
        strides = tensors[name].strides if name in tensors else None
        tensors[name] = TensorDesc(array.dtype, array.shape, strides)
    call: Call | None = None
    if isinstance(subject, Graph):
        function, operator, known = subject.bind(tensors, dims), None, dict[str, Constant]()
    else:
        function, operator = subject.bind(tensors, attributes), subject
        binding = subject.resolve(tensors, attributes)
        known = binding.attributes
        described = {
            name: TensorDesc(binding.dtype(name, None), tensor.sizes, tensor.strides)
            for name, tensor in binding.tensors.items()
        }
        call = Call(subject, described, attributes)
    if function.symbols():
        raise DmlcError(
            f"what {subject.name} gives cannot be proven before the sizes of its tensors are known",
            notes=["give them: --tensor NAME=FLOAT32[2,3]"],
        )
    given = {ir_name(name): array for name, array in (arrays or {}).items()}
    inputs, concerned = _draw_inputs(function, call, given, seed)
    expected, allowed = find_expected(function, inputs), bound_errors(function, inputs)
    return Proof(
        f"data drawn with seed {seed}" if len(given) < len(inputs) else "given arrays",
        function,
        inputs,
        expected,
        {name: _replace_nan(array, expected[name]) for name, array in allowed.items()},
        operator,
        known,
        concerned,
    )


def _draw_inputs(
    function: Function, call: Call | None, given: Mapping[str, Array], seed: int
) -> tuple[dict[str, Array], Concerned]:
    """Arrays for a function's parameters: those given, and others drawn. Of a few draws, the first
    of which sections `differs` name no element, or the fewest: a proof covers only elements on
    which all implementations agree."""
    best: tuple[int, dict[str, Array], Concerned] | None = None
    for attempt in range(_DRAWS):
        inputs: dict[str, Array] = {}
        for number, parameter in enumerate(function.parameters):
            desc = TensorDesc(parameter.dtype, parameter.extents, fixed_strides(parameter))
            values = given.get(parameter.name)
            if values is None:
                random = np.random.default_rng(
                    (seed, number, attempt) if attempt else (seed, number)
                )
                inputs[parameter.name] = draw_values(desc, "random", random)
            else:
                inputs[parameter.name] = lay_out(values, desc)
        concerned: Concerned = {}
        if call is not None:
            named = {name: inputs[ir_name(name)] for name in call.inputs}
            concerned = _find_concerned(call, named)
        count = sum(int(a.sum()) for found in concerned.values() for a in found.values())
        if best is None or count < best[0]:
            best = count, inputs, concerned
        if not count or all(parameter.name in given for parameter in function.parameters):
            break
    if best is None:
        raise InternalError("at least one draw is made")
    return best[1], best[2]


# Memory ---------------------------------------------------------------------------------------


def unwritten(dtype: DataType) -> Array:
    """Fill value for memory before a kernel writes it, so that elements never written are noticed:
    NaN, or a number that no computation is likely to give. One element."""
    if dtype.is_float:
        return np.full(1, math.nan, dtype.dtype)
    return np.full(dtype.bytes, _UNWRITTEN, np.uint8).view(dtype.dtype)


def count_elements(tensor: TensorSpec) -> int:
    """Number of elements that the tensor's memory spans."""
    return TensorDesc(tensor.dtype, tensor.extents, tensor.strides).last_offset + 1


def buffer_bytes(tensor: TensorSpec, program: Program) -> int:
    """Bytes of a buffer for the tensor as all of the program's shaders see it: whole structures, of
    which the last may extend beyond the tensor."""
    unit = max(program.alignments.get(tensor.name, 0), WORD_BYTES)
    return max(1, -(-count_elements(tensor) * tensor.dtype.bytes // unit)) * unit


def place(tensor: TensorSpec, array: Array, gap: Array) -> Array:
    """Array in the tensor's memory layout: itself if packed, else a line of elements with `gap`
    between them."""
    if tensor.strides is None:
        return array
    memory = np.full(count_elements(tensor), gap)
    steps = [s * array.itemsize for s in tensor.strides]
    np.lib.stride_tricks.as_strided(memory, array.shape, steps)[...] = array
    return memory
