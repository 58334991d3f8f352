"""The Python face of dmlc: one call from arrays to arrays.

Everything here puts stages together that live elsewhere; `dmlc` itself offers these names
lazily. Calls that look alike share what was compiled for the first of them.
"""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np

from dmlc.binding import Graph, Operator, TensorDesc, ir_name
from dmlc.binding.graph import read_dims
from dmlc.binding.operator import read_attributes
from dmlc.catalog import operator
from dmlc.devices import load_function, load_on
from dmlc.ir import Function
from dmlc.known_answers import find_trusted
from dmlc.oracle import find_expected
from dmlc.parameters import expect, wrong_kind
from dmlc.pipeline import compile
from dmlc.program import Program, Role, TensorSpec
from dmlc.runtime.arrays import (
    Array,
    Shape,
    buffer_strides,
    check_names,
    check_output,
    name_inputs,
    name_outputs,
    read_sizes,
    show_shape,
)
from dmlc.runtime.interface import AnyDevice, AnyExecutable
from dmlc.runtime.report import Report
from dmlc.scalars import TENSOR_TYPES, held_type
from dmlc.source import (
    Diagnostic,
    DmlcError,
    UnsupportedError,
)

__all__ = [
    "Results",
    "compile",
    "load_program",
    "run",
]

Subject: TypeAlias = str | Operator | Graph | Function
Outputs: TypeAlias = Mapping[str, Array | Sequence[int]]

_PLANS_KEPT = 1024


class Results(dict[str, Array]):
    """The arrays a run gave, by output name; `report` says on which device, and what it had to
    copy."""

    def __init__(self, arrays: Mapping[str, Array], report: Report) -> None:
        super().__init__(arrays)
        self.report = report


# Devices --------------------------------------------------------------------------------------


def load_program(program: Program, device: str = "opencl") -> AnyExecutable:
    """Builds a program on a device: `opencl`, `vulkan`, `d3d12` or `wgpu`, each also followed by
    `:` and an index or part of a name. OpenCL runs programs for the target `opencl`, Vulkan and
    Direct3D 12 those for `hlsl`, and WebGPU those for `wgsl`.

    Raises `UnavailableError` where there is no such device, and `UnsupportedError` where the
    device does not run programs for that target.
    """
    expect("program", program, Program, "a dmlc.Program, which dmlc.compile gives")
    found = find_trusted(device)
    if found is None:
        raise UnsupportedError(
            "the reference evaluates functions, not compiled programs",
            notes=["dmlc.run(function, inputs, device='reference') does that"],
        )
    return load_on(program, found)


# Running --------------------------------------------------------------------------------------


def run(
    subject: Subject,
    inputs: Mapping[str, object] | Sequence[object],
    attributes: Mapping[str, object] | None = None,
    outputs: Outputs | None = None,
    device: str = "opencl",
    dims: Mapping[str, int] | None = None,
) -> Results:
    """Runs an operator, a graph or a function on arrays, and returns its outputs by name.

    `subject` is the name of a built-in operator, an `Operator`, a `Graph`, or an `ir.Function`.
    `dims` states those symbols of a graph that the arrays' sizes leave open. `inputs`
    maps tensor names to NumPy arrays of the very data types to be used, of any strides; an
    optional input may be None. It may also be a list with an entry for every input, in the order
    of the table. `outputs` may map names to arrays to write into, or to sizes. An
    array of tensors is a list, or given one by one: `InputTensors[0]`. `device` is `opencl`,
    `opencl:<index or part of a name>`, `vulkan` or `d3d12` (the HLSL itself) or `wgpu` (WGSL) with
    the same, or `reference`.

    The first call with new types, sizes and attributes compiles; calls like it do not. Packed
    arrays of equal sizes share one kernel whatever their sizes are.
    """
    trusted = find_trusted(device)
    call, listed = _read_call(subject, inputs, attributes, outputs, trusted, dims)
    found = call.run()
    if not listed:
        return found
    return Results({_show_entry(listed, n): a for n, a in found.items()}, found.report)


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedRun:
    """What a call of `run` comes to, short of running it."""

    function: Function
    device: AnyDevice | None
    """None for the reference."""
    executable: AnyExecutable | None
    inputs: Mapping[str, Array]
    """By the names that the function has for them."""
    outputs: Mapping[str, Shape]
    """The sizes of those outputs for which the call says them."""


def plan_run(
    subject: Subject,
    inputs: Mapping[str, object] | Sequence[object],
    attributes: Mapping[str, object] | None = None,
    outputs: Outputs | None = None,
    device: str = "opencl",
    dims: Mapping[str, int] | None = None,
) -> PlannedRun:
    """The function that `run` would run, what it would run it with, and on what. Raises as `run`
    does."""
    call, _ = _read_call(subject, inputs, attributes, outputs, find_trusted(device), dims)
    plan = call.plan()
    sizes = {n: o.shape if isinstance(o, np.ndarray) else tuple(o) for n, o in call.outputs.items()}
    return PlannedRun(plan.function, call.device, plan.executable, call.arrays, sizes)


def _read_call(
    subject: Subject,
    inputs: Mapping[str, object] | Sequence[object],
    attributes: Mapping[str, object] | None,
    outputs: Outputs | None,
    device: AnyDevice | None,
    dims: Mapping[str, int] | None,
) -> tuple[_Call, tuple[str, ...]]:
    """A call as its parameters have it, and the arrays of tensors among its names."""
    resolved = _resolve(subject)
    listed = _list_arrays(resolved)
    given = _spell_entries(listed, name_inputs(_input_names(resolved), inputs))
    arrays = {name: _as_array(name, value) for name, value in given.items() if value is not None}
    wanted: dict[str, Array | Sequence[int]] = {
        name: cast(Array, value) if isinstance(value, np.ndarray) else read_sizes(name, value)
        for name, value in _spell_entries(listed, name_outputs(outputs)).items()
    }
    values = read_attributes(attributes)
    return _Call(resolved, arrays, values, wanted, read_dims(dims), device), listed


def _list_arrays(subject: Operator | Graph | Function) -> tuple[str, ...]:
    """The arrays of tensors that an operator has."""
    if not isinstance(subject, Operator):
        return ()
    return tuple(t.name for t in subject.definition.levels[-1].tensors if t.array)


def _spell_entries(listed: tuple[str, ...], given: Mapping[str, object]) -> Mapping[str, object]:
    """What was given by name, entries of arrays of tensors by the names that functions have for
    them: `InputTensors=[a, b]` and `InputTensors[0]` become `InputTensors_0` and so on."""
    if not listed:
        return given
    found: dict[str, object] = {}
    for name, value in given.items():
        if name in listed and isinstance(value, list | tuple):
            items = cast("Sequence[object]", value)
            found.update({f"{name}_{number}": item for number, item in enumerate(items)})
        else:
            found[ir_name(name)] = value
    return found


def _show_entry(listed: tuple[str, ...], name: str) -> str:
    """`OutputTensors_0` as callers write it: `OutputTensors[0]`."""
    array, _, number = name.rpartition("_")
    return f"{array}[{number}]" if array in listed and number.isdecimal() else name


def _resolve(subject: object) -> Operator | Graph | Function:
    found = operator(subject) if isinstance(subject, str) else subject
    if not isinstance(found, (Operator, Graph, Function)):
        raise wrong_kind("subject", "an operator, its name, a graph, or an ir.Function", subject)
    return found


def _input_names(subject: Operator | Graph | Function) -> tuple[str, ...]:
    """The inputs in the order that a list gives them."""
    if isinstance(subject, Operator):
        return tuple(t.name for t in subject.definition.levels[-1].tensors if not t.output)
    if isinstance(subject, Graph):
        return subject.inputs
    return tuple(p.name for p in subject.parameters)


def _as_array(name: str, value: object) -> Array:
    if not isinstance(value, (np.ndarray, np.generic)):
        raise DmlcError(
            f"the input {name} is a {type(value).__name__}, and an array is expected",
            notes=["make one with its data type: numpy.asarray(values, dtype='float32')"],
        )
    if isinstance(value, np.ma.MaskedArray):
        raise DmlcError(
            f"the input {name} is a masked array, and tensors have no mask",
            notes=["give it values for what is masked: array.filled(0)"],
        )
    array: Array = np.asarray(cast(Array, value))
    _check_data_type(name, array)
    return array


def _check_data_type(name: str, array: Array) -> None:
    if held_type(array.dtype) is None:
        raise DmlcError(
            f"the array given for {name} holds {array.dtype}, which no tensor can hold",
            notes=[f"tensors hold {', '.join(t.name for t in TENSOR_TYPES)}"],
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """What calls of one signature share."""

    subject: Operator | Graph | Function
    """Kept, so that the `id` in the signature stays this object's own."""
    function: Function
    executable: AnyExecutable | None
    """None where the reference evaluates the function."""


class _Plans:
    """Plans by signature; the oldest go first. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: dict[object, _Plan] = {}

    def find(self, signature: object) -> _Plan | None:
        return self._plans.get(signature)

    def keep(self, signature: object, plan: _Plan) -> None:
        with self._lock:
            while len(self._plans) >= _PLANS_KEPT:
                del self._plans[next(iter(self._plans))]
            self._plans[signature] = plan


_plans = _Plans()


class _Call:
    """One call of `run`, with everything about it checked that can be without compiling."""

    def __init__(
        self,
        subject: Operator | Graph | Function,
        arrays: dict[str, Array],
        attributes: Mapping[str, object],
        outputs: Outputs,
        dims: Mapping[str, int],
        device: AnyDevice | None,
    ) -> None:
        _check_settings(subject, attributes, dims)
        self.subject = subject
        self.attributes = attributes
        self.dims = dims
        self.device = device
        self.given = {n: o for n, o in outputs.items() if isinstance(o, np.ndarray)}
        for name, array in self.given.items():
            _check_data_type(name, array)
        self.outputs: dict[str, Array | Sequence[int]] = dict(outputs)
        self.arrays = arrays
        # Operators have tensors of 1 to 8 dimensions: a single number is a tensor of one.
        self.single = isinstance(subject, Operator) and any(
            a.ndim == 0 for a in (*arrays.values(), *self.given.values())
        )
        if self.single:
            self.arrays = {n: _of_rank_one(a) for n, a in arrays.items()}
            lifted = {n: _of_rank_one(a) for n, a in self.given.items()}
            sizes = {n: (o if o else (1,)) for n, o in outputs.items() if n not in self.given}
            self.outputs = {**sizes, **lifted}

    def plan(self) -> _Plan:
        """What serves this call and all of its signature."""
        signature = self._signature()
        plan = _plans.find(signature) if signature is not None else None
        if plan is None:
            plan = self._plan()
            if signature is not None:
                _plans.keep(signature, plan)
        return plan

    def run(self) -> Results:
        plan = self.plan()
        if plan.executable is None:
            found = self._evaluate(plan.function)
            report = Report("reference")
        else:
            wanted = cast("Mapping[str, Array | Shape]", self.outputs)
            found, report = plan.executable.run(self.arrays, wanted)
        if self.single:
            found = {n: a.reshape(()) if a.shape == (1,) else a for n, a in found.items()}
        # An array that was given is handed back itself, not a view of it.
        return Results({n: self.given.get(n, a) for n, a in found.items()}, report)

    def _signature(self) -> object:
        """What decides which plan serves this call; None where it cannot be looked up."""
        if isinstance(self.subject, Function):
            layouts: object = None
        else:
            layouts = (
                tuple((n, _layout(a)) for n, a in self.arrays.items()),
                tuple((n, _layout(a)) for n, a in self.outputs.items() if n in self.given),
                tuple((n, tuple(cast("Shape", o))) for n, o in self._wanted_sizes().items()),
            )
        device = self.device
        try:
            settings = _freeze(self.attributes), _freeze(self.dims)
            signature = (id(self.subject), layouts, settings, device)
            hash(signature)
        except TypeError:
            return None
        return signature

    def _plan(self) -> _Plan:
        subject = self.subject
        if isinstance(subject, Function):
            function = subject
        elif isinstance(subject, Graph):
            function = self._bind_graph(subject)
        else:
            function = self._bind(subject)
        for warning in function.warnings:
            # For whoever calls `dmlc.run`.
            warnings.warn(f"{function.name}: {warning.message}", UserWarning, stacklevel=5)
        if self.device is None:
            return _Plan(subject, function, None)
        if isinstance(subject, Operator):
            general = self._general_executable(subject)
            if general is not None:
                return _Plan(subject, function, general)
        return _Plan(subject, function, load_function(function, self.device))

    def _bind(self, subject: Operator) -> Function:
        tensors = {**self.arrays, **self._given()}
        known = [t.name for t in subject.definition.levels[-1].tensors if t.output]
        listed = _list_arrays(subject)
        # What is no output is refused with the results, where outputs are spoken of.
        wanted = {
            n: sizes
            for n, sizes in self._wanted_sizes().items()
            if _show_entry(listed, n).partition("[")[0] in known
        }
        described = {n: _describe(a) for n, a in tensors.items()}
        return subject.bind({**described, **wanted}, self.attributes)

    def _bind_graph(self, subject: Graph) -> Function:
        missing = [name for name in subject.inputs if name not in self.arrays]
        if missing:
            raise DmlcError(
                [
                    Diagnostic(f"input '{name}' of graph '{subject.name}' is not given")
                    for name in missing
                ]
            )
        tensors = {**self.arrays, **self._given()}
        described = {n: _describe(a) for n, a in tensors.items()}
        # What is no output is refused with the results, where outputs are spoken of.
        wanted = {n: s for n, s in self._wanted_sizes().items() if n in subject.outputs}
        return subject.bind({**described, **wanted}, self.dims)

    def _wanted_sizes(self) -> dict[str, Sequence[int]]:
        """The outputs that are asked for by their sizes."""
        return {n: o for n, o in self.outputs.items() if not isinstance(o, np.ndarray)}

    def _given(self) -> dict[str, Array]:
        return {n: cast(Array, self.outputs[n]) for n in self.given}

    def _general_executable(self, subject: Operator) -> AnyExecutable | None:
        """The kernel for every size, where the call is one that it serves: packed arrays of one
        shape, and an operator that looks at nothing but elements."""
        tensors = {**self.arrays, **self._given()}
        shapes = {a.shape for a in tensors.values()}
        shapes |= {tuple(sizes) for sizes in self._wanted_sizes().values()}
        strided = any(_describe(a).strides is not None for a in tensors.values())
        if self.device is None or len(shapes) != 1 or strided:
            return None
        open_sizes = {n: TensorDesc(_describe(a).data_type) for n, a in tensors.items()}
        try:
            function = subject.bind(open_sizes, self.attributes)
        except DmlcError:
            # Bound to sizes it is fine, so it needs them: the function bound to them serves.
            return None
        executable = load_function(function, self.device)
        largest = max(a.size for a in tensors.values())
        return executable if largest <= executable.program.max_count else None

    def _evaluate(self, function: Function) -> dict[str, Array]:
        """What the reference gives, in the caller's arrays where it gave some."""
        specs = _result_specs(function)
        check_names(self.outputs, specs, "output")
        found = find_expected(function, self.arrays)
        for spec in specs:
            wanted = self.outputs.get(spec.name)
            if wanted is None:
                continue
            result = found[spec.name]
            if isinstance(wanted, np.ndarray):
                array = check_output(spec, wanted, result.shape)
                array[...] = result
                found[spec.name] = array
            elif tuple(wanted) != result.shape:
                raise DmlcError(
                    f"the output {spec.name} has the sizes {show_shape(result.shape)}, "
                    f"and {show_shape(tuple(wanted))} are asked for"
                )
        return found


def _check_settings(
    subject: Operator | Graph | Function, attributes: Mapping[str, object], dims: Mapping[str, int]
) -> None:
    """Refuses what has no meaning for the subject: attributes are an operator's, symbols a
    graph's."""
    if attributes and isinstance(subject, Function):
        raise DmlcError(
            "an ir.Function has its attributes bound already",
            notes=["give attributes to Operator.bind, or run the operator itself"],
        )
    if attributes and isinstance(subject, Graph):
        raise DmlcError(
            f"graph '{subject.name}' takes no attributes",
            notes=["each call in it gives its own"],
        )
    if dims and not isinstance(subject, Graph):
        raise DmlcError("only graphs have symbols, and this is none: leave 'dims' out")


def _of_rank_one(array: Array) -> Array:
    return array.reshape((1,)) if array.ndim == 0 else array


def _describe(array: Array) -> TensorDesc:
    """An array as a tensor: with its strides where a buffer can express them; else as packed,
    which it will be when a run has copied it."""
    dtype = held_type(array.dtype)
    if dtype is None:
        raise DmlcError(f"no tensor can hold {array.dtype}")
    if array.flags.c_contiguous or array.size == 0:
        return TensorDesc(dtype, array.shape)
    return TensorDesc(dtype, array.shape, buffer_strides(array))


def _layout(value: object) -> object:
    """What of an array a plan depends on."""
    array = cast(Array, value)
    if array.flags.c_contiguous:
        return array.dtype, array.shape
    return array.dtype, array.shape, buffer_strides(array)


def _freeze(value: object) -> object:
    """A hashable stand-in for an attribute's value, which tells 1, 1.0 and True apart."""
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return tuple((name, _freeze(item)) for name, item in items)
    if isinstance(value, np.ndarray):
        return _freeze(cast(Array, value).tolist())
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(item) for item in cast("Sequence[object]", value))
    return type(value), value


def _result_specs(function: Function) -> tuple[TensorSpec, ...]:
    stages = {s.name: s for s in function.stages}
    return tuple(
        TensorSpec(r.name, Role.OUTPUT, stages[r.name].dtype, stages[r.name].extents)
        for r in function.results
    )
