"""Call of an operator with its arrays: the unit that the harness makes, runs, shrinks and keeps."""

from __future__ import annotations

import dataclasses
import functools
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
from dmlc.source import DmlcError, Span
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import Verdict
from dmlc.transform.simplify import drop_marks

_UNWRITTEN = 0xA5
"""Byte that fills outputs before a run, to reveal elements without a store."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Call:
    """Arguments of an operator's call without the elements of its tensors."""

    operator: Operator
    tensors: Mapping[str, TensorDesc]
    """Tensors present, inputs and outputs, with data type, sizes, and strides in elements unless
    packed. Entries of arrays of tensors have names such as `InputTensors[0]`."""
    attributes: Mapping[str, object]
    """Attributes in the form of `Operator.bind`."""

    @functools.cached_property
    def binding(self) -> Binding:
        """Bound tensors and attributes. Raises `DmlcError` for a call that the operator refuses."""
        return self.operator.resolve(self.tensors, self.attributes)

    @functools.cached_property
    def function(self) -> ir.Function:
        """Bound function, without the stages that only its gradient reads. Raises `DmlcError` for a
        call that the operator refuses."""
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

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Sizes of every tensor, by name."""
        return {name: desc.shape for name, desc in self.tensors.items()}

    def resize(
        self,
        sizes: Mapping[str, tuple[int, ...]],
        attributes: Mapping[str, object] | None = None,
        strides: bool = True,
        dropped: int | None = None,
    ) -> Call | None:
        """Call with other sizes, also of outputs whose sizes do not follow; tensors not in `sizes`
        are removed. `dropped` is an axis that is removed from tensors of the highest rank. None if
        the operator refuses it."""
        given = self.attributes if attributes is None else attributes
        kept = {
            name: _resize(desc, sizes[name], strides, dropped)
            for name, desc in self.tensors.items()
            if name in sizes
        }
        outputs = self.outputs
        changed = {n for n in outputs if n in kept and kept[n].sizes != outputs[n].sizes}
        # Sizes that follow from the inputs are kept; the others are changed with them.
        inferred = {n: TensorDesc(d.data_type) if n in outputs else d for n, d in kept.items()}
        for tensors in ([inferred] if changed else []) + [kept]:
            try:
                bound = self.operator.resolve(tensors, given).tensors
            except DmlcError:
                continue
            if all(name in bound and bound[name].sizes is not None for name in kept):
                found = {n: _resize(d, bound[n].shape, strides) for n, d in kept.items()}
                return Call(self.operator, found, given)
        return None

    def cut(self, most: int) -> Call | None:
        """Packed call whose axes have at most `most` elements; None if the operator refuses it."""
        sizes = {n: tuple(min(size, most) for size in shape) for n, shape in self.sizes.items()}
        return self.resize(sizes, strides=False)

    def make_outputs(self) -> dict[str, Array]:
        """Memory for the outputs, filled with an unlikely pattern."""
        return {name: make_output(desc) for name, desc in self.outputs.items()}

    def name_outputs(self, results: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by their names in the tables, from the results of the bound function."""
        return {name: results[ir_name(name)] for name in self.outputs}

    def __repr__(self) -> str:
        return f"<call of {self.operator.name}: {self}>"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """Prints a short form for Hypothesis and IPython instead of all fields."""
        printer.text(repr(self))

    def __str__(self) -> str:
        """Call in the words of the command line."""
        tensors = [f"{name}={show_tensor(desc)}" for name, desc in self.tensors.items()]
        attributes = [f"{name}={show_value(value)}" for name, value in self.attributes.items()]
        return " ".join([*tensors, *attributes])


def _resize(
    desc: TensorDesc, sizes: tuple[int, ...], strides: bool, dropped: int | None = None
) -> TensorDesc:
    """Description with other sizes, and its strides if they are still valid."""
    kept = desc.strides if strides else None
    if kept is not None and len(kept) > len(sizes) and dropped is not None:
        kept = kept[:dropped] + kept[dropped + 1 :]
    kept = kept if kept is not None and len(kept) == len(sizes) else None
    return TensorDesc(desc.data_type, sizes, kept)


def show_tensor(desc: TensorDesc) -> str:
    """Description in the form of `--tensor`: `FLOAT32[2,3]{1,2}`."""
    sizes = ",".join(str(size) for size in desc.sizes or ())
    strides = "" if desc.strides is None else "{" + ",".join(map(str, desc.strides)) + "}"
    return f"{desc.data_type.name}[{sizes}]{strides}"


def show_value(value: object) -> str:
    """Attribute's value in the form of `--attr`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DataType):
        return value.name
    if isinstance(value, list | tuple):
        return ",".join(map(show_value, cast("Sequence[object]", value)))
    return str(value)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Case:
    """Call with the elements of its inputs."""

    call: Call
    inputs: Mapping[str, Array]
    """Arrays with the data types, sizes and strides of the call; see `lay_out`."""
    title: str
    """Origin in a few words: an example's title, or the kind of data drawn."""
    expected: Mapping[str, Array] = dataclasses.field(default_factory=dict[str, Array])
    """Expected outputs of an example: floating ones in float64, others in their own type. The
    reference gives those that are not here."""
    within: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    """Tolerances of an example's outputs, where it states them."""
    span: Span | None = None
    """Span of the example, or of the constraint that forbids the call."""
    places: Mapping[str, Span] = dataclasses.field(default_factory=dict[str, Span])
    """Span of each expected output in an example."""
    difference: syntax.Difference | None = None
    """Section `differs` that this is the example of."""
    instead: Mapping[str, Array] = dataclasses.field(default_factory=dict[str, Array])
    """Results of other implementations in that section, in the form of `expected`."""

    def __repr__(self) -> str:
        return f"<case of {self.call.operator.name}, {self.title}: {self.call}>"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """Prints a short form for Hypothesis and IPython instead of all fields."""
        printer.text(repr(self))

    @functools.cached_property
    def reference(self) -> Mapping[str, Array]:
        """Reference results by the outputs' names."""
        return self.call.name_outputs(find_expected(self.call.function, self.given))

    @property
    def given(self) -> dict[str, Array]:
        """Inputs by the names of the bound function's parameters."""
        return {ir_name(name): array for name, array in self.inputs.items()}

    @functools.cached_property
    def _bounds(self) -> dict[FloatPromises, Mapping[str, Array]]:
        """Error bounds of the outputs by name; kept for variants and mutants."""
        return {}

    @property
    def plain(self) -> Case:
        """Call and data alone, without an example's expectations."""
        return Case(self.call, self.inputs, self.title, span=self.span)

    @property
    def truth(self) -> Truth:
        """Reference results, with error bounds for any device."""
        return self.find_truth(LEAST)

    def find_truth(self, floats: FloatPromises) -> Truth:
        """Reference results, with error bounds for a device with these promises."""
        if floats not in self._bounds:
            found = bound_errors(self.call.function, self.given, floats)
            self._bounds[floats] = self.call.name_outputs(found)
        return Truth(self.reference, self._bounds[floats])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Expected results of a case, by the outputs' names."""

    expected: Mapping[str, Array]
    allowed: Mapping[str, Array]
    """Error bound of each element; see `bounds`."""


def lay_out(values: Array, desc: TensorDesc) -> Array:
    """Copy of the values with a description's strides. If strides of 0 make elements share memory,
    the last value is that of all of them."""
    if desc.strides is None:
        return np.ascontiguousarray(values).reshape(desc.shape)
    memory = np.zeros(desc.last_offset + 1, values.dtype)
    view = as_strided(memory, desc.shape, [s * values.itemsize for s in desc.strides])
    view[...] = values
    return view


def make_output(desc: TensorDesc) -> Array:
    """Memory for an output, filled with an unlikely pattern."""
    dtype = desc.data_type.dtype
    count = desc.last_offset + 1
    memory = np.full(count * dtype.itemsize, _UNWRITTEN, np.uint8).view(dtype)
    if desc.strides is None:
        return memory.reshape(desc.shape)
    return as_strided(memory, desc.shape, [s * dtype.itemsize for s in desc.strides])


def run_case(case: Case, device: str) -> dict[str, Array]:
    """Results of a case on a device, by `dmlc.run`, whose errors are raised."""
    call = case.call
    return dict(run(call.operator, case.inputs, call.attributes, call.make_outputs(), device))


def judge(
    case: Case, results: Mapping[str, Array], floats: FloatPromises = LEAST
) -> dict[str, Verdict]:
    """Compares each result with the expected one, within the bounds for a device with these
    promises."""
    wanted = find_wanted(case, floats)
    return {
        name: Verdict.of(found, wanted.expected[name], wanted.allowed[name])
        for name, found in results.items()
    }


def store(values: Array, dtype: DataType) -> Array:
    """Values converted to a tensor's data type."""
    with np.errstate(all="ignore"):
        return values.astype(dtype.dtype)


def find_wanted(case: Case, floats: FloatPromises = LEAST) -> Truth:
    """Expected outputs in their own types: those of the example, or else those of the reference."""
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
