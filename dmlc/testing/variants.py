"""Variants of a case: other programs, and other strides, that must give the same results.

They need no oracle. A result is compared with that of the case itself on the same device: bit for
bit if it is rounded as every device must, or else within the bounds of both. A difference is an
error of the compiler or of a driver. A variant that does not apply to a case says why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from random import Random

import numpy as np

from dmlc.binding import TensorDesc, ir_name
from dmlc.devices import (
    compile_for,
    find_device,
    find_promises,
    list_matrices,
    list_profiles,
    load_function,
    load_on,
)
from dmlc.ir import Apply, Function, fixed_strides, packed_strides, value_type
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile
from dmlc.lowering.group import lower_group
from dmlc.pipeline import USUAL, Steps
from dmlc.runtime.floats import LEAST, FloatPromises
from dmlc.runtime.interface import AnyDevice
from dmlc.scalars import Array
from dmlc.sizes import Shapes, evaluate_size, refuse_sizes
from dmlc.source import DmlcError, InternalError, UnavailableError, UnsupportedError
from dmlc.testing.case import Call, Case, lay_out, make_output, run_case
from dmlc.testing.compare import Verdict
from dmlc.testing.permute import draw_orders, invert, permute_axes
from dmlc.testing.schedules import DrawnSchedule, fuse_plainly
from dmlc.testing.value_errors import rounds_alike
from dmlc.transform.fuse import Group, keep_apart
from dmlc.transform.open_sizes import check_open

Results = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class Variant:
    """Other way to compute the results of a case."""

    name: str
    case: Case
    """Case that it is a variant of, mostly the original one."""
    compute: Callable[[str], Results]

    def run(self, device: str) -> Results:
        """Results under the names of the case. Raises `UnsupportedError`, with the reason, if the
        variant does not apply to the case on that device."""
        return self.compute(device)


@dataclasses.dataclass(frozen=True)
class VariantRun:
    """Outcome of a variant."""

    name: str
    verdicts: Mapping[str, Verdict]
    """Comparison of each result with that of the case."""
    reason: str = ""
    """Reason that the variant does not apply to the case."""
    error: str = ""
    """Error of a variant that applies."""

    @property
    def holds(self) -> bool:
        return not self.error and all(verdict.holds for verdict in self.verdicts.values())

    def __str__(self) -> str:
        if self.reason or self.error:
            return f"{self.name}: {self.reason or self.error}"
        wrong = [f"{n}: {v}" for n, v in self.verdicts.items() if not v.holds]
        return f"{self.name}: {'; '.join(wrong) or 'agrees'}"


def try_variants(
    case: Case, device: str, results: Mapping[str, Array], random: np.random.Generator
) -> Iterator[VariantRun]:
    """Runs every variant of a case, and compares it with the results of the case itself."""
    for variant in list_variants(case, random):
        try:
            wanted = results if variant.case is case else run_case(variant.case, device)
            found = variant.run(device)
        except UnsupportedError as error:
            yield VariantRun(variant.name, {}, reason=error.diagnostics[0].message)
        except UnavailableError:
            raise
        except (DmlcError, InternalError) as error:
            yield VariantRun(variant.name, {}, error=str(error))
        else:
            floats = find_promises(device)
            yield VariantRun(variant.name, hold_to(variant.case, wanted, found, floats))


def hold_to(
    case: Case,
    results: Mapping[str, Array],
    found: Mapping[str, Array],
    floats: FloatPromises = LEAST,
) -> dict[str, Verdict]:
    """Compares the results of a variant with those of the case, on a device with these promises.
    Both may have errors within the bounds; values that are rounded alike everywhere must be
    equal."""
    bounds = case.find_truth(floats).allowed
    alike = _find_alike(case.call.function)
    verdicts: dict[str, Verdict] = {}
    for name, values in results.items():
        same = ir_name(name) in alike
        allowed = np.zeros(values.shape) if same else 2.0 * bounds[name]
        verdicts[name] = Verdict.of(found[name], values, allowed)
    return verdicts


def _find_alike(function: Function) -> set[str]:
    """Stages with the same bits however they are computed: all their operations are rounded as
    every device must, and no order of terms matters."""
    found = {p.name for p in function.parameters} | {t.name for t in function.tables}
    for stage in function.stages:
        body, reduction = stage.body, stage.reduction
        operations = (i for i in body.instructions if isinstance(i, Apply))
        plain = all(
            not value_type(body.instructions[i.operands[0]]).is_float or rounds_alike(i.operation)
            for i in operations
        )
        sums = reduction is not None and reduction.record.ordered and body.dtype.is_float
        if plain and not sums and all(load.tensor in found for load in body.loads()):
            found.add(stage.name)
    return found


def list_variants(case: Case, random: np.random.Generator) -> Iterator[Variant]:
    """Variants of a case, with random choices by `random`."""

    seed = int(random.integers(1 << 32))

    def make(name: str, compute: Callable[[Case, str], Results], of: Case = case) -> Variant:
        return Variant(name, of, lambda device: compute(of, device))

    def by(steps: Steps) -> Callable[[Case, str], Results]:
        return lambda case, device: _run_by(case, device, steps)

    def lay(choose: _Layout) -> Callable[[Case, str], Results]:
        return lambda case, device: _run_laid_out(case, device, choose, Random(seed))

    yield make("every stage in a kernel of its own", by(Steps(fuse=keep_apart)))
    yield make("work in small parts", by(Steps(lower=lower_in_parts)))
    yield make("another profile", _run_by_other_profile)
    yield make("another schedule", by(Steps(fuse_plainly, DrawnSchedule(seed))))
    yield make("other schedules of each stage", by(Steps(keep_apart, DrawnSchedule(seed + 1))))
    yield make("matrix instructions", _run_by_matrices)
    yield make("permuted axes", lambda case, device: _run_permuted(case, device, Random(seed)))
    yield make("packed tensors", lay(_repack))
    yield make("padded tensors", lay(_pad))
    yield make("transposed tensors", lay(_transpose))
    yield make("strides of 0", lay(_repeat), _repeat_values(case, Random(seed)))
    yield make("sizes known when compiled", by(USUAL))
    yield make("sizes known at run time", _run_open)


# Programs -------------------------------------------------------------------------------------


def _find_compiling(device: str) -> AnyDevice:
    """Device that programs are compiled for."""
    found = find_device(device)
    if found is None:
        raise UnsupportedError("the reference evaluates functions, and compiles none")
    return found


def _run_by(case: Case, device: str, steps: Steps, profile: str | None = None) -> Results:
    """Results of a case by the program of some steps."""
    found, function = _find_compiling(device), case.call.function
    executable = load_on(compile_for(function, found, steps, profile), found)
    outputs = {ir_name(n): array for n, array in case.call.make_outputs().items()}
    return case.call.name_outputs(executable(case.given, outputs))


def _run_by_other_profile(case: Case, device: str) -> Results:
    found = _find_compiling(device)
    usual, *others = list_profiles(found)
    if not others:
        raise UnsupportedError(f"the language of {device} has no profile but '{usual}'")
    return _run_by(case, device, USUAL, others[0])


def _run_by_matrices(case: Case, device: str) -> Results:
    """Results of a case by the device's kernels with matrix instructions."""
    rows = list_matrices(_find_compiling(device))
    if not rows:
        raise UnsupportedError(f"{device} has no matrix instruction that dmlc uses")
    return _run_by(case, device, Steps(instructions=rows[:1]))


_ITEMS = 32
"""Number of work items in a small group."""


def lower_in_parts(
    function: Function, group: Group, profile: Profile, limits: Limits
) -> tuple[k.Kernel, ...]:
    """Kernels of a group for a device that has small work groups, needs many of them, and has no
    caches: split reductions, launches in rows of a few groups, stores by caches."""
    small = dataclasses.replace(
        profile,
        group_size=min(profile.group_size, _ITEMS),
        per_item=min(profile.per_item, 1 << 10),
        streaming_bytes=None if profile.streaming_bytes is None else 1,
        groups=1 << 12,
        piece=32,
        holding=min(profile.holding, _ITEMS),
    )
    narrow = dataclasses.replace(
        limits, group_size=min(limits.group_size, _ITEMS), row=limits.row and 3
    )
    return lower_group(function, group, small, narrow)


# Memory ---------------------------------------------------------------------------------------


def _run_permuted(case: Case, device: str, random: Random) -> Results:
    """Results of a case with the axes of its tensors permuted, in memory and in the function."""
    found, function = _find_compiling(device), case.call.function
    if all(len(tensor.extents) < 2 for tensor in function.tensors().values()):
        raise UnsupportedError("no tensor has two axes")
    orders = draw_orders(function, random)
    permuted = permute_axes(function, orders, random)
    inputs: Results = {}
    for parameter in permuted.parameters:
        array = case.given[parameter.name].transpose(orders[parameter.name])
        inputs[parameter.name] = np.ascontiguousarray(array) if parameter.strides is None else array
    outputs: Results = {}
    for result in permuted.results:
        stage = permuted.tensors()[result.name]
        desc = TensorDesc(stage.dtype, stage.extents, fixed_strides(result))
        outputs[result.name] = make_output(desc)
    given = load_function(permuted, found)(inputs, outputs)
    return case.call.name_outputs({n: a.transpose(invert(orders[n])) for n, a in given.items()})


def _repack(desc: TensorDesc, array: Array | None, random: Random) -> TensorDesc:
    return dataclasses.replace(desc, strides=None)


def _pad(desc: TensorDesc, array: Array | None, random: Random) -> TensorDesc:
    """Strides with gaps after the elements along each axis."""
    strides: list[int] = []
    step = random.randint(1, 2)
    for size in reversed(desc.shape):
        strides.append(step)
        step = step * max(size, 1) + random.randint(0, 3)
    return dataclasses.replace(desc, strides=tuple(reversed(strides)))


def _transpose(desc: TensorDesc, array: Array | None, random: Random) -> TensorDesc:
    """Strides with the axes permuted in memory."""
    axes = list(range(len(desc.shape)))
    while len(axes) > 1 and axes == sorted(axes):
        random.shuffle(axes)
    packed = packed_strides(tuple(desc.shape[axis] for axis in axes))
    return dataclasses.replace(desc, strides=tuple(packed[axes.index(a)] for a in sorted(axes)))


def _repeat_values(case: Case, random: Random) -> Case:
    """Case whose inputs each are constant along an axis, if it has a longer one."""
    inputs: Results = {}
    for name, array in case.inputs.items():
        axes = [axis for axis, size in enumerate(array.shape) if size > 1]
        if axes and array.size and not any(_list_repeating(array)):
            axis = random.choice(axes)
            array = np.broadcast_to(array.take([0], axis), array.shape)
        inputs[name] = lay_out(array, case.call.tensors[name])
    return Case(case.call, inputs, case.title)


def _repeat(desc: TensorDesc, array: Array | None, random: Random) -> TensorDesc:
    """Strides of 0 along axes with constant values."""
    found = [] if array is None else list(_list_repeating(array))
    if not found:
        return desc
    sizes = tuple(1 if axis in found else size for axis, size in enumerate(desc.shape))
    steps = enumerate(packed_strides(sizes))
    strides = tuple(0 if axis in found else step for axis, step in steps)
    return dataclasses.replace(desc, strides=strides)


def _list_repeating(array: Array) -> Iterator[int]:
    """Axes of several elements along which all bits are equal."""
    bits = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    for axis, size in enumerate(bits.shape):
        first = bits.take([0], axis) if size > 1 else None
        if first is not None and bits.size and bool((bits == first).all()):
            yield axis


_Layout = Callable[[TensorDesc, Array | None, Random], TensorDesc]


def _run_laid_out(case: Case, device: str, choose: _Layout, random: Random) -> Results:
    """Results of a case with other strides."""
    call = case.call
    tensors = {n: choose(d, case.inputs.get(n), random) for n, d in call.tensors.items()}
    if tensors == dict(call.tensors):
        raise UnsupportedError("its tensors lie so already, or none of them can")
    laid_out = Call(call.operator, tensors, call.attributes)
    try:
        _ = laid_out.binding
    except DmlcError as error:
        raise UnsupportedError(f"the operator refuses it: {_first(error)}") from error
    _refuse_other_memory(call, laid_out)
    inputs = {n: lay_out(a, tensors[n]) for n, a in case.inputs.items()}
    return run_case(Case(laid_out, inputs, case.title), device)


def _refuse_other_memory(call: Call, other: Call) -> None:
    """Raises if the formula reads strides, and depends on the changed ones."""
    bodies, others = ([s.body for s in c.function.stages] for c in (call, other))
    if bodies != others:
        raise UnsupportedError("its results depend on the strides of its tensors")


def _first(error: DmlcError) -> str:
    return error.diagnostics[0].message


# Sizes ----------------------------------------------------------------------------------------


def _run_open(case: Case, device: str) -> Results:
    """Results of a case by a program with as many open sizes as possible."""
    found, call = _find_compiling(device), case.call
    function = open_sizes(call)
    packed = {n: dataclasses.replace(d, strides=None) for n, d in call.tensors.items()}
    _refuse_other_memory(call, Call(call.operator, packed, call.attributes))
    inputs = {n: np.ascontiguousarray(a) for n, a in case.given.items()}
    shapes = Shapes()
    for parameter in function.parameters:
        shapes.match(parameter.name, parameter.extents, inputs[parameter.name].shape)
    try:
        refuse_sizes(function.name, function.checks, shapes.sizes)
    except DmlcError as error:
        raise UnsupportedError(f"left open, its sizes are not taken: {_first(error)}") from error
    return case.call.name_outputs(load_function(function, found)(inputs))


def open_sizes(call: Call) -> Function:
    """Function of a call with as many open sizes as the operator takes. Raises `UnsupportedError`,
    with the reason for the first, if there is none."""
    refused: DmlcError | None = None
    made: Function | None = None
    opened: dict[_Axis, str] = {}
    for group in _list_groups(call):
        symbols = {axis: f"S{len(set(opened.values()))}" for axis in group if axis not in opened}
        if not symbols:
            continue
        try:
            made = _bind_open(call, opened | symbols)
        except DmlcError as error:
            refused = refused or error
        else:
            opened |= symbols
    if made is None:
        why = "no size is more than 1" if refused is None else _first(refused)
        raise UnsupportedError(f"no size can be left open: {why}")
    return made


_Axis = tuple[str, int]
"""Axis: tensor and number."""


def _list_groups(call: Call) -> Iterator[list[_Axis]]:
    """Axes that may have one open size: first all those of equal size, then those at one place."""
    axes = [((n, a), s) for n, d in call.tensors.items() for a, s in enumerate(d.shape) if s > 1]
    sizes = dict.fromkeys(size for (name, _), size in axes if name in call.inputs)
    for size in sizes:
        yield [axis for axis, own in axes if own == size]
    for size in sizes:
        places = dict.fromkeys(place for (_, place), own in axes if own == size)
        for wanted in places:
            yield [axis for axis, own in axes if own == size and axis[1] == wanted]


def _bind_open(call: Call, opened: Mapping[_Axis, str]) -> Function:
    """Function with those sizes open. Outputs follow from inputs where possible."""

    def describe(name: str, desc: TensorDesc) -> TensorDesc:
        sizes = [opened.get((name, axis), size) for axis, size in enumerate(desc.shape)]
        return TensorDesc(desc.data_type, sizes)

    outputs = [
        {n: TensorDesc(d.data_type) for n, d in call.outputs.items()},
        {n: describe(n, d) for n, d in call.outputs.items()},
    ]
    inputs = {n: describe(n, d) for n, d in call.inputs.items()}
    symbols = {symbol: call.tensors[name].shape[axis] for (name, axis), symbol in opened.items()}
    refused: list[DmlcError] = []
    for described in outputs:
        try:
            function = call.operator.bind({**inputs, **described}, call.attributes)
            check_open(function)
            _check_outputs(call, function, symbols)
        except DmlcError as error:
            refused.append(error)
        else:
            return function
    raise refused[0]


def _check_outputs(call: Call, function: Function, symbols: Mapping[str, int]) -> None:
    """Raises if the function's outputs have other sizes than the call's, which may be one of
    several choices."""
    found = function.tensors()
    for name, desc in call.outputs.items():
        extents = found[ir_name(name)].extents
        if tuple(evaluate_size(extent, symbols) for extent in extents) != desc.shape:
            raise UnsupportedError(f"the sizes of output '{name}' do not follow from its inputs")
