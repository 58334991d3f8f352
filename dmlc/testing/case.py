"""A call of an operator with its arrays: what the harness makes, runs, shrinks and keeps."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dmlc import ir
from dmlc.api import run
from dmlc.binding import Operator, TensorDesc, ir_name
from dmlc.binding.facts import Binding
from dmlc.language import syntax
from dmlc.oracle import find_expected
from dmlc.runtime.floats import LEAST, FloatPromises
from dmlc.scalars import Array, DataType
from dmlc.source import Span
from dmlc.testing.bounds import bound_errors
from dmlc.testing.verify import Verdict
from dmlc.transform.simplify import drop_marks

_UNWRITTEN = 0xA5
"""The bytes of an output before it is computed, so that what nothing writes is seen."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Call:
    """What a call of an operator says, beside the elements of its tensors."""

    operator: Operator
    tensors: Mapping[str, TensorDesc]
    """Every tensor that takes part, outputs too, with its sizes, and strides where it is not
    packed. Entries of arrays of tensors have names such as `InputTensors[0]`."""
    attributes: Mapping[str, object]
    """As `Operator.bind` takes them."""

    @functools.cached_property
    def binding(self) -> Binding:
        """What the operator is bound to. Raises `DmlcError` where it does not permit the call."""
        return self.operator.resolve(self.tensors, self.attributes)

    @functools.cached_property
    def function(self) -> ir.Function:
        """The bound function, without what only its gradient would read. Raises `DmlcError` where
        the operator does not permit the call."""
        return drop_marks(self.operator.bind(self.tensors, self.attributes))

    @property
    def inputs(self) -> dict[str, TensorDesc]:
        return self._choose(output=False)

    @property
    def outputs(self) -> dict[str, TensorDesc]:
        return self._choose(output=True)

    def _choose(self, output: bool) -> dict[str, TensorDesc]:
        rows = {t.name: t.output for t in self.operator.definition.newest.tensors}
        return {n: d for n, d in self.tensors.items() if rows[n.partition("[")[0]] == output}

    def __repr__(self) -> str:
        return f"<call of {self.operator.name}: {self}>"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """What Hypothesis and IPython show, in place of all fields."""
        printer.text(repr(self))

    def __str__(self) -> str:
        """The call in the words of the command line."""
        tensors = [f"{name}={show_tensor(desc)}" for name, desc in self.tensors.items()]
        attributes = [f"{name}={show_value(value)}" for name, value in self.attributes.items()]
        return " ".join([*tensors, *attributes])


def show_tensor(desc: TensorDesc) -> str:
    """A description as `--tensor` takes it: `FLOAT32[2,3]{1,2}`."""
    sizes = ",".join(str(size) for size in desc.sizes or ())
    strides = "" if desc.strides is None else "{" + ",".join(map(str, desc.strides)) + "}"
    return f"{desc.data_type.name}[{sizes}]{strides}"


def show_value(value: object) -> str:
    """An attribute's value as `--attr` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DataType):
        return value.name
    if isinstance(value, list | tuple):
        return ",".join(map(show_value, cast("Sequence[object]", value)))
    return str(value)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Case:
    """A call with the elements of its inputs."""

    call: Call
    inputs: Mapping[str, Array]
    """Arrays of the very data types, sizes and strides of the call: see `lay_out`."""
    title: str
    """A few words that say where it comes from: an example's title, or what was drawn."""
    expected: Mapping[str, Array] = dataclasses.field(default_factory=dict[str, Array])
    """What an example expects of outputs: of floating ones in float64, of others in their own type.
    The reference says it for the outputs that are not here."""
    within: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    """What an example's outputs may differ by at most, where it says so."""
    span: Span | None = None
    """The example, or the constraint that forbids the call."""
    places: Mapping[str, Span] = dataclasses.field(default_factory=dict[str, Span])
    """Where an example says what it expects of an output."""
    difference: syntax.Difference | None = None
    """The section `differs` that it is the example of."""
    instead: Mapping[str, Array] = dataclasses.field(default_factory=dict[str, Array])
    """What that says others give in place of what is expected, as `expected` has it."""

    def __repr__(self) -> str:
        return f"<case of {self.call.operator.name}, {self.title}: {self.call}>"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """What Hypothesis and IPython show, in place of all fields."""
        printer.text(repr(self))

    @functools.cached_property
    def reference(self) -> Mapping[str, Array]:
        """What the reference gives, by the outputs' names."""
        expected = find_expected(self.call.function, _spell(self.inputs))
        names = {ir_name(name): name for name in self.call.outputs}
        return {names[n]: array for n, array in expected.items()}

    @functools.cached_property
    def _bounds(self) -> dict[FloatPromises, Mapping[str, Array]]:
        """What the outputs may differ by, by name: kept for variants and mutants."""
        return {}

    @property
    def plain(self) -> Case:
        """The call and its data alone: the reference says what it must give."""
        return Case(self.call, self.inputs, self.title, span=self.span)

    @property
    def truth(self) -> Truth:
        """What the reference gives, and how far from it any device may be."""
        return self.find_truth(LEAST)

    def find_truth(self, floats: FloatPromises) -> Truth:
        """What the reference gives, and how far from it a device with these promises may be."""
        if floats not in self._bounds:
            found = bound_errors(self.call.function, _spell(self.inputs), floats)
            self._bounds[floats] = {name: found[ir_name(name)] for name in self.call.outputs}
        return Truth(self.reference, self._bounds[floats])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """What a case must give, by the outputs' names."""

    expected: Mapping[str, Array]
    allowed: Mapping[str, Array]
    """The largest difference that each element may have: see `bounds`."""


def _spell(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {ir_name(name): array for name, array in inputs.items()}


def lay_out(values: Array, desc: TensorDesc) -> Array:
    """The values in memory as a description has them: packed, or with its strides. Where those
    repeat elements, the last of the values that share a place is the one that all of them have."""
    sizes = tuple(size for size in desc.sizes or () if isinstance(size, int))
    if desc.strides is None:
        return np.ascontiguousarray(values).reshape(sizes)
    memory = np.zeros(desc.last_offset + 1, values.dtype)
    view = as_strided(memory, sizes, [s * values.itemsize for s in desc.strides])
    view[...] = values
    return view


def make_output(desc: TensorDesc) -> Array:
    """Memory for an output, full of what no computation is likely to give."""
    sizes = tuple(size for size in desc.sizes or () if isinstance(size, int))
    count = math.prod(sizes) if desc.strides is None else desc.last_offset + 1
    dtype = desc.data_type.dtype
    memory = np.full(max(count, 0) * dtype.itemsize, _UNWRITTEN, np.uint8).view(dtype)
    if desc.strides is None:
        return memory.reshape(sizes)
    return as_strided(memory, sizes, [s * dtype.itemsize for s in desc.strides])


def run_case(case: Case, device: str) -> dict[str, Array]:
    """What a device gives for a case, as `dmlc.run` has it. Raises as that does."""
    call = case.call
    outputs: dict[str, Array] = {n: make_output(d) for n, d in call.outputs.items()}
    return dict(run(call.operator, case.inputs, call.attributes, outputs, device))


def judge(
    case: Case, results: Mapping[str, Array], floats: FloatPromises = LEAST
) -> dict[str, Verdict]:
    """Holds each result to what the case must give on a device with these promises."""
    wanted = find_wanted(case, floats)
    return {
        name: Verdict.of(found, wanted.expected[name], wanted.allowed[name])
        for name, found in results.items()
    }


def store(values: Array, dtype: DataType) -> Array:
    """Values in a tensor's own type."""
    with np.errstate(all="ignore"):
        return values.astype(dtype.dtype)


def find_wanted(case: Case, floats: FloatPromises = LEAST) -> Truth:
    """What each output must be, in its own type: what an example expects of it, or else what the
    reference gives."""
    truth = case.find_truth(floats)
    expected, allowed = dict(truth.expected), dict(truth.allowed)
    for name, exact in case.expected.items():
        dtype = case.call.tensors[name].data_type
        expected[name] = stored = store(exact, dtype)
        if name in case.within:
            # Whole numbers are exact, whatever an example says.
            within = case.within[name] if dtype.is_float else 0.0
            allowed[name] = np.full(stored.shape, within)
    return Truth(expected, allowed)
