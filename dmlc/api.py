"""Python interface of dmlc: one call from arrays to arrays.

Everything here combines stages defined elsewhere; `dmlc` itself exports these names lazily. Calls
of equal signature share the program of the first of them.
"""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

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
from dmlc.pipeline import USUAL, Steps, compile, read_steps
from dmlc.program import Program, Role, TensorSpec
from dmlc.runtime.arrays import (
    Array,
    Shape,
    buffer_strides,
    check_names,
    check_output,
    name_inputs,
    name_outputs,
    show_shape,
)
from dmlc.runtime.foreign import Given, receive
from dmlc.runtime.interface import AnyDevice, AnyExecutable
from dmlc.runtime.report import Report
from dmlc.scalars import TENSOR_TYPES, held_type
from dmlc.source import (
    Diagnostic,
    DmlcError,
    Source,
    UnsupportedError,
)

__all__ = [
    "Results",
    "compile",
    "load_program",
    "run",
]

Subject: TypeAlias = str | Operator | Graph | Function
Outputs: TypeAlias = Mapping[str, Any]
"""Arrays to write into, or sizes."""

_PLANS_KEPT = 1024
_BYTES_KEPT = 256 << 20
"""Largest total size of the kept plans in bytes, by `_Plan.estimate_bytes`."""
_BYTES_A_CHARACTER = 256
"""Memory of a driver and its functions in bytes per character of a kernel: half a megabyte for a
short one on lavapipe, and a quarter of that on PoCL."""


class Results(dict[str, Any]):
    """Result arrays of a run, by output name, of NumPy or of the inputs' library; `report` has the
    device, and the copies that were made."""

    def __init__(self, arrays: Mapping[str, Any], report: Report) -> None:
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
    schedule: str | Source | None = None,
    matrix_instructions: Sequence[str] = (),
    gpu_class: str | None = None,
    schedules: str | Source | None = None,
) -> Results:
    """Runs an operator, a graph or a function on arrays, and returns its outputs by name.

    `subject` is the name of a built-in operator, an `Operator`, a `Graph`, or an `ir.Function`.
    `dims` states those symbols of a graph that the arrays' sizes leave open. `inputs`
    maps tensor names to arrays of the very data types to be used, of any strides; an
    optional input may be None. It may also be a list with an entry for every input, in the order
    of the table. `outputs` may map names to arrays to write into, or to sizes. An
    array of tensors is a list, or given one by one: `InputTensors[0]`.

    Arrays are NumPy's, or anything in the host's memory that has `__dlpack__`,
    `__array_interface__` or the buffer protocol: PyTorch's tensors, JAX's arrays, `array.array`.
    Their memory is used where it lies. The first array that is from a library of its own, inputs
    before outputs, decides what all results are arrays of; NumPy arrays and buffers decide
    nothing, and alone they give NumPy arrays. An array given to write into is handed back itself.

    `device` is `opencl`,
    `opencl:<index or part of a name>`, `vulkan` or `d3d12` (the HLSL itself) or `wgpu` (WGSL) with
    the same, or `reference`.

    `schedule` has schedules of your own for some kernels, as `Program.with_schedule` takes them;
    the kernels are then those for the sizes at hand. `matrix_instructions` are those that `compile`
    takes: the first that the device has makes products of halves, and the bits of results then
    depend on the device. `gpu_class` and `schedules` are those of `compile`.

    The first call with new types, sizes and attributes compiles; calls like it do not. Packed
    arrays of equal sizes share one kernel whatever their sizes are.
    """
    trusted = find_trusted(device)
    steps = read_steps(schedule, matrix_instructions, gpu_class, schedules)
    call, listed = _read_call(subject, inputs, attributes, outputs, trusted, dims, steps)
    found = call.run()
    if not listed:
        return found
    return Results({_show_entry(listed, n): a for n, a in found.items()}, found.report)


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedRun:
    """Plan of a call of `run`."""

    function: Function
    device: AnyDevice | None
    """Device; None for the reference."""
    executable: AnyExecutable | None
    compiled: Function
    """Function that the executable was compiled from: the call's, or one for all sizes of it."""
    inputs: Mapping[str, Array]
    """Inputs by their names in the function."""
    outputs: Mapping[str, Shape]
    """Sizes of those outputs for which the call gives them."""
    steps: Steps = USUAL
    """Compiler's steps."""


def plan_run(
    subject: Subject,
    inputs: Mapping[str, object] | Sequence[object],
    attributes: Mapping[str, object] | None = None,
    outputs: Outputs | None = None,
    device: str = "opencl",
    dims: Mapping[str, int] | None = None,
    schedule: str | Source | None = None,
    matrix_instructions: Sequence[str] = (),
    gpu_class: str | None = None,
    schedules: str | Source | None = None,
) -> PlannedRun:
    """Function that `run` would run, its arrays, and the device. Raises as `run` does."""
    trusted, steps = (
        find_trusted(device),
        read_steps(schedule, matrix_instructions, gpu_class, schedules),
    )
    call, _ = _read_call(subject, inputs, attributes, outputs, trusted, dims, steps)
    plan = call.plan()
    sizes = {n: o.shape if isinstance(o, np.ndarray) else tuple(o) for n, o in call.outputs.items()}
    return PlannedRun(
        plan.function, call.device, plan.executable, plan.compiled, call.arrays, sizes, call.steps
    )


def _read_call(
    subject: Subject,
    inputs: Mapping[str, object] | Sequence[object],
    attributes: Mapping[str, object] | None,
    outputs: Outputs | None,
    device: AnyDevice | None,
    dims: Mapping[str, int] | None,
    steps: Steps,
) -> tuple[_RunRequest, tuple[str, ...]]:
    """Call from its parameters, and the arrays of tensors among its names."""
    resolved = _resolve(subject)
    listed = _list_arrays(resolved)
    given = _spell_entries(listed, name_inputs(_input_names(resolved), inputs))
    there = {name: value for name, value in given.items() if value is not None}
    arrays = receive(there, _spell_entries(listed, name_outputs(outputs)))
    values = read_attributes(attributes)
    if device is None and steps != USUAL:
        asked = "rows of the schedule table"
        asked = "a matrix instruction" if steps.instructions else asked
        asked = "a schedule" if steps.schedule is not None else asked
        raise UnsupportedError(f"the reference has no kernels, which {asked} could be for")
    return _RunRequest(resolved, arrays, values, read_dims(dims), device, steps), listed


def _list_arrays(subject: Operator | Graph | Function) -> tuple[str, ...]:
    """Names of an operator's arrays of tensors."""
    if not isinstance(subject, Operator):
        return ()
    return tuple(t.name for t in subject.definition.levels[-1].tensors if t.array)


def _spell_entries(listed: tuple[str, ...], given: Mapping[str, object]) -> Mapping[str, object]:
    """Arguments by name, with entries of arrays of tensors in the functions' naming:
    `InputTensors=[a, b]` and `InputTensors[0]` become `InputTensors_0` and so on."""
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
    """Entry in the callers' naming: `OutputTensors[0]` for `OutputTensors_0`."""
    array, _, number = name.rpartition("_")
    return f"{array}[{number}]" if array in listed and number.isdecimal() else name


def _resolve(subject: object) -> Operator | Graph | Function:
    found = operator(subject) if isinstance(subject, str) else subject
    if not isinstance(found, (Operator, Graph, Function)):
        raise wrong_kind("subject", "an operator, its name, a graph, or an ir.Function", subject)
    return found


def _input_names(subject: Operator | Graph | Function) -> tuple[str, ...]:
    """Inputs in the order of a list of arrays."""
    if isinstance(subject, Operator):
        return tuple(t.name for t in subject.definition.levels[-1].tensors if not t.output)
    if isinstance(subject, Graph):
        return subject.inputs
    return tuple(p.name for p in subject.parameters)


def _check_data_type(name: str, array: Array) -> None:
    if held_type(array.dtype) is None:
        raise DmlcError(
            f"the array given for {name} holds {array.dtype}, which no tensor can hold",
            notes=[f"tensors hold {', '.join(t.name for t in TENSOR_TYPES)}"],
            code="E0811",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """Parts shared by calls of one signature."""

    subject: Operator | Graph | Function
    """Subject, kept alive so that the `id` in the signature stays unique."""
    function: Function
    executable: AnyExecutable | None
    """Executable; None if the reference evaluates the function."""
    compiled: Function
    """Compiled function: the call's, or one for all sizes of it."""

    def estimate_bytes(self) -> int:
        """Approximate size in bytes. Plans that share a kernel each count it."""
        if self.executable is None:
            return _BYTES_A_CHARACTER
        program = self.executable.program
        characters = sum(len(kernel.source) for kernel in program.kernels)
        constants = sum(tensor.bytes or 0 for tensor in program.constants)
        return _BYTES_A_CHARACTER * characters + 2 * constants


class _Plans:
    """Cache of plans by signature, with bounded memory; the oldest are dropped first.
    Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: dict[object, _Plan] = {}
        self._bytes = 0

    def find(self, signature: object) -> _Plan | None:
        return self._plans.get(signature)

    def keep(self, signature: object, plan: _Plan) -> None:
        with self._lock:
            self._drop(signature)
            self._bytes += plan.estimate_bytes()
            while self._plans and (len(self._plans) >= _PLANS_KEPT or self._bytes > _BYTES_KEPT):
                self._drop(next(iter(self._plans)))
            self._plans[signature] = plan

    def _drop(self, signature: object) -> None:
        old = self._plans.pop(signature, None)
        self._bytes -= 0 if old is None else old.estimate_bytes()


_plans = _Plans()


class _RunRequest:
    """Call of `run`, with all checks that need no compilation."""

    def __init__(
        self,
        subject: Operator | Graph | Function,
        call: Given,
        attributes: Mapping[str, object],
        dims: Mapping[str, int],
        device: AnyDevice | None,
        steps: Steps = USUAL,
    ) -> None:
        _check_settings(subject, attributes, dims)
        self.subject = subject
        self.attributes = attributes
        self.dims = dims
        self.device = device
        self.steps = steps
        arrays = (*call.inputs.items(), *_given_outputs(call).items())
        for name, array in arrays:
            _check_data_type(name, array)
        # Operators have tensors of 1 to 8 dimensions: a single number is a tensor of one.
        self.single = isinstance(subject, Operator) and any(a.ndim == 0 for _, a in arrays)
        self.call = _of_rank_one(call) if self.single else call
        self.arrays, self.outputs = self.call.inputs, self.call.outputs

    def plan(self) -> _Plan:
        """Plan shared by all calls of this signature."""
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
            found, report = plan.executable.run_given(self.call)
        if self.single:
            found = {n: a.reshape(()) if a.shape == (1,) else a for n, a in found.items()}
        return Results(self.call.hand_over(found), report)

    def _signature(self) -> object:
        """Key of this call's plan; None if it cannot be cached."""
        if isinstance(self.subject, Function):
            layouts: object = None
        else:
            layouts = (
                tuple((n, _layout(a)) for n, a in self.arrays.items()),
                tuple((n, _layout(a)) for n, a in self._given().items()),
                tuple(self._wanted_sizes().items()),
            )
        device = self.device
        try:
            settings = _freeze(self.attributes), _freeze(self.dims)
            signature = (id(self.subject), layouts, settings, device, self.steps)
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
            return _Plan(subject, function, None, function)
        if isinstance(subject, Operator) and self.steps == USUAL:
            general = self._load_general(subject)
            if general is not None:
                return _Plan(subject, function, *general)
        executable = load_function(function, self.device, self.steps)
        return _Plan(subject, function, executable, function)

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
                    Diagnostic(
                        f"input '{name}' of graph '{subject.name}' is not given", code="E0805"
                    )
                    for name in missing
                ]
            )
        tensors = {**self.arrays, **self._given()}
        described = {n: _describe(a) for n, a in tensors.items()}
        # What is no output is refused with the results, where outputs are spoken of.
        wanted = {n: s for n, s in self._wanted_sizes().items() if n in subject.outputs}
        return subject.bind({**described, **wanted}, self.dims)

    def _wanted_sizes(self) -> dict[str, Shape]:
        """Outputs that are requested by their sizes."""
        return {n: o for n, o in self.outputs.items() if not isinstance(o, np.ndarray)}

    def _given(self) -> dict[str, Array]:
        return _given_outputs(self.call)

    def _load_general(self, subject: Operator) -> tuple[AnyExecutable, Function] | None:
        """Kernel for every size, and its function, for a call that it serves: packed arrays of one
        shape, and an element-wise operator."""
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
        return (executable, function) if largest <= executable.program.max_count else None

    def _evaluate(self, function: Function) -> dict[str, Array]:
        """Results of the reference, in the caller's arrays if given."""
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
                    f"and {show_shape(tuple(wanted))} are asked for",
                    code="E0810",
                )
        return found


def _check_settings(
    subject: Operator | Graph | Function, attributes: Mapping[str, object], dims: Mapping[str, int]
) -> None:
    """Raises for arguments that do not apply to the subject: attributes are an operator's, symbols
    a graph's."""
    if attributes and isinstance(subject, Function):
        raise DmlcError(
            "an ir.Function has its attributes bound already",
            notes=["give attributes to Operator.bind, or run the operator itself"],
            code="E0811",
        )
    if attributes and isinstance(subject, Graph):
        raise DmlcError(
            f"graph '{subject.name}' takes no attributes",
            notes=["each call in it gives its own"],
            code="E0811",
        )
    if dims and not isinstance(subject, Graph):
        raise DmlcError(
            "only graphs have symbols, and this is none: leave 'dims' out", code="E0811"
        )


def _given_outputs(call: Given) -> dict[str, Array]:
    """Arrays that results are written into."""
    return {n: o for n, o in call.outputs.items() if isinstance(o, np.ndarray)}


def _of_rank_one(call: Given) -> Given:
    """Call with its scalars as tensors of one element."""
    return dataclasses.replace(
        call,
        inputs={n: a.reshape(a.shape or (1,)) for n, a in call.inputs.items()},
        outputs={
            n: o.reshape(o.shape or (1,)) if isinstance(o, np.ndarray) else o or (1,)
            for n, o in call.outputs.items()
        },
    )


def _describe(array: Array) -> TensorDesc:
    """Description of an array: with its strides if a buffer can express them; else as packed, which
    its copy will be."""
    dtype = held_type(array.dtype)
    if dtype is None:
        raise DmlcError(f"no tensor can hold {array.dtype}", code="E0811")
    if array.flags.c_contiguous or array.size == 0:
        return TensorDesc(dtype, array.shape)
    return TensorDesc(dtype, array.shape, buffer_strides(array))


def _layout(array: Array) -> object:
    """Properties of an array that a plan depends on."""
    if array.flags.c_contiguous:
        return array.dtype, array.shape
    return array.dtype, array.shape, buffer_strides(array)


def _freeze(value: object) -> object:
    """Hashable key of an attribute's value, which distinguishes 1, 1.0 and True."""
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
