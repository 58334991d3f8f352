"""NumPy arrays as the memory of a program's tensors.

A kernel accesses a tensor as one contiguous range of memory with fixed strides. An array with these
strides is used in place; otherwise an `Operand` has memory of its own, with the reason, and values
are copied in or out around each launch. Nothing here knows devices.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dmlc.parameters import expect_mapping, wrong_kind
from dmlc.program import Program, Role, TensorSpec
from dmlc.scalars import DataType, held_type
from dmlc.sizes import Shapes, evaluate_size, refuse_sizes
from dmlc.source import DmlcError, UnsupportedError, list_names, unknown_name

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """Copy made for a run: the tensor, and the reason that its array could not be used in place."""

    tensor: str
    reason: str

    def __str__(self) -> str:
        return f"{self.tensor} was copied: {self.reason}"


@dataclasses.dataclass(slots=True)
class Operand:
    """Tensor for one run: `memory` is the kernel's buffer, `view` is that memory with the tensor's
    sizes and strides, and `array` is the caller's. If `reason` is None, `view` and `array` share
    memory and nothing is copied."""

    memory: Array
    view: Array
    array: Array
    reason: str | None = None

    def load(self) -> None:
        """Copies the caller's values into the memory of an input."""
        if self.reason is not None:
            self.view[...] = self.array

    def store(self) -> None:
        """Copies the kernel's values from the memory of an output to the caller."""
        if self.reason is not None:
            self.array[...] = self.view


def as_bytes(memory: Array) -> Bytes:
    """Contiguous memory as bytes, shared."""
    return memory.ravel(order="K").view(np.uint8)


def is_loaded(spec: TensorSpec) -> bool:
    """Whether a tensor's memory must be uploaded before a run: that of an input, and of a strided
    output, whose gaps no kernel stores."""
    if spec.role is Role.OUTPUT:
        return spec.strides is not None
    return spec.role is Role.INPUT


def constant_array(spec: TensorSpec) -> Array:
    """Values of a program's constant, packed."""
    return np.array(spec.values, spec.dtype.dtype).reshape(fixed_shape(spec))


def name_inputs(
    names: Sequence[str], given: Mapping[str, object] | Sequence[object]
) -> Mapping[str, object]:
    """Inputs of a caller by name: a mapping, or a list with an entry for every input in order.
    Raises `ArgumentError` for anything else."""
    if isinstance(given, Mapping):
        return expect_mapping("inputs", given, "a mapping")
    shown = list_names(names)
    if not isinstance(given, list | tuple):
        expected = "a mapping of inputs' names to arrays, or a list with one for each"
        raise wrong_kind("inputs", expected, given, [f"the inputs are {shown}"])
    if len(given) != len(names):
        verb = "is" if len(names) == 1 else "are"
        raise DmlcError(
            f"inputs is a list of {len(given)}, and {len(names)} {verb} needed: {shown}",
            notes=["a list has an entry for every input, None for one that is left out; or give a "
                   "mapping from names"],
        )  # fmt: skip
    return dict(zip(names, given, strict=True))


def name_outputs(given: Mapping[str, object] | None) -> Mapping[str, object]:
    """Outputs of a caller by name. Raises `ArgumentError` for anything but a mapping."""
    if given is None:
        return {}
    expected = "a mapping of outputs' names to arrays to write into, or to sizes"
    return expect_mapping("outputs", given, expected)


def read_sizes(name: str, given: object) -> Shape:
    """Sizes that a caller gives for an output. Raises `DmlcError`."""
    shown = repr(given)[:60]
    items = cast("tuple[object, ...]", given) if isinstance(given, (tuple, list)) else (None,)
    sizes = [int(cast(int, s)) for s in items if _is_size(s)]
    if len(sizes) != len(items):
        raise DmlcError(
            f"the output {name} takes an array to write into or a tuple of sizes, "
            f"and {shown} is given"
        )
    return tuple(sizes)


def _is_size(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    return int(cast(int, value)) >= 0


def check_names(given: Mapping[str, object], specs: tuple[TensorSpec, ...], what: str) -> None:
    """Raises `DmlcError` for a name in `given` that no spec has. `what`: input or output."""
    known = {s.name for s in specs}
    wrong = [n for n in given if n not in known]
    if wrong:
        raise DmlcError(
            [unknown_name(f"{what} tensor", str(n), [s.name for s in specs]) for n in wrong]
        )


def check_output(spec: TensorSpec, array: Array, shape: Shape) -> Array:
    """Array for the output `spec`, after checks of its data type, sizes and writability."""
    check_dtype("output", spec, array)
    if array.shape != shape:
        raise DmlcError(
            f"the array given for the output {spec.name} has the sizes {show_shape(array.shape)}, "
            f"and the result has {show_shape(shape)}"
        )
    if not array.flags.writeable:
        raise DmlcError(f"the array given for the output {spec.name} is read-only")
    if _repeats(array):
        raise DmlcError(
            f"elements of the array given for the output {spec.name} share memory",
            notes=["an output needs an array whose elements are all distinct"],
        )
    return array


def check_dtype(what: str, spec: TensorSpec, array: Array) -> None:
    """Raises `DmlcError` for an array of another type than that of `spec`. `what`: input or
    output."""
    found = held_type(array.dtype)
    if found is not spec.dtype:
        raise DmlcError(
            f"the {what} {spec.name} takes {spec.dtype.name}, "
            f"and the array given holds {found.name if found else array.dtype}",
            notes=[f"convert it first, as array.astype('{spec.dtype.dtype.name}') does in NumPy"],
        )


def show_shape(shape: tuple[int | str, ...]) -> str:
    """Sizes in messages: `[2, 3]`."""
    return "[" + ", ".join(str(s) for s in shape) + "]"


def bind_symbols(
    program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Shape]
) -> tuple[dict[str, int], dict[str, Shape]]:
    """Value of each symbol, and shape of each input and output. If the one symbol counts elements,
    all tensors that have it have one shape; it is that of the inputs, or, for a program without
    such inputs, that of the sizes given for the outputs."""
    if program.symbols and program.counted is None:
        return _bind_axes(program, inputs)
    sizes, shapes = _bind_count(program, inputs, outputs)
    tensors = (*program.inputs, *program.outputs)
    symbols = {s.name: symbol_of(s) for s in tensors}
    return sizes, {
        s.name: fixed_shape(s) if (symbol := symbols[s.name]) is None else shapes[symbol]
        for s in tensors
    }


def _bind_axes(
    program: Program, inputs: Mapping[str, Array]
) -> tuple[dict[str, int], dict[str, Shape]]:
    """Values and shapes for symbols that are sizes of axes, all of which inputs have."""
    known = Shapes()
    for spec in program.inputs:
        wrong = known.match(spec.name, spec.extents, inputs[spec.name].shape)
        if wrong is not None:
            raise DmlcError(f"the arrays given do not fit {program.name}: {wrong}")
    sizes, most = known.sizes, program.max_count
    refuse_sizes(program.name, program.checks, sizes)
    for spec in program.tensors:
        count = math.prod(evaluate_size(e, sizes) for e in spec.extents)
        if count > most:
            raise UnsupportedError(
                f"{program.name} was compiled for tensors of at most {most:,} elements, and "
                f"{spec.name} has {count:,}",
                notes=["bind the sizes themselves: positions are as wide then as they need"],
            )
    for value in program.formulas:
        if evaluate_size(value, sizes) > most:
            raise UnsupportedError(
                f"{program.name} was compiled for at most {most:,} points, and {value} is "
                f"{evaluate_size(value, sizes):,}",
                notes=["bind the sizes themselves: positions are as wide then as they need"],
            )
    shapes = {
        spec.name: tuple(evaluate_size(e, sizes) for e in spec.extents)
        for spec in (*program.inputs, *program.outputs)
    }
    return sizes, shapes


def _bind_count(
    program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Shape]
) -> tuple[dict[str, int], dict[str, Shape]]:
    """Values and shapes for a symbol that is an element count."""
    shapes: dict[str, Shape] = {}
    first: dict[str, str] = {}
    for spec in (*program.inputs, *program.outputs):
        shape = inputs[spec.name].shape if spec.name in inputs else outputs.get(spec.name)
        symbol = symbol_of(spec)
        if symbol is None or shape is None:
            continue
        if shapes.setdefault(symbol, shape) != shape:
            raise DmlcError(
                f"{first[symbol]} has the sizes {show_shape(shapes[symbol])}, and {spec.name} "
                f"has {show_shape(shape)}; they must be equal"
            )
        first.setdefault(symbol, spec.name)
    sizes: dict[str, int] = {}
    for symbol in program.symbols:
        if symbol not in shapes:
            raise DmlcError(
                f"the sizes of the result of {program.name} cannot be inferred",
                notes=["give them: outputs={'" + program.outputs[0].name + "': (2, 3)}"],
            )
        sizes[symbol] = math.prod(shapes[symbol])
        if sizes[symbol] > program.max_count:
            raise UnsupportedError(
                f"{program.name} was compiled for at most {program.max_count} elements, and the "
                f"arrays given have {sizes[symbol]}"
            )
        if sizes[symbol] == 0 and any(k.dispatch.groups(sizes)[0] for k in program.kernels):
            raise UnsupportedError(
                f"{program.name} reads arrays of 1 element or more, and those given have none",
                notes=["bind the sizes themselves: that gives a function for empty arrays"],
            )
    return sizes, shapes


def symbol_of(spec: TensorSpec) -> str | None:
    """Symbol of the tensor's element count, or None for fixed sizes."""
    return next((e for e in spec.extents if isinstance(e, str)), None)


def fixed_shape(spec: TensorSpec) -> Shape:
    """Sizes of a tensor without symbols."""
    return tuple(e for e in spec.extents if isinstance(e, int))


def place_input(spec: TensorSpec, array: Array, shape: Shape, alignment: int = 1) -> Operand:
    """Input as memory with the strides of `spec`, which begins at a multiple of `alignment` bytes;
    copied only if necessary."""
    if array.shape != shape:
        raise DmlcError(
            f"the input {spec.name} has the sizes {show_shape(array.shape)}, "
            f"and the program was compiled for {show_shape(shape)}"
        )
    strides = element_strides(spec, shape)
    reason = _reason_to_copy(array, strides, alignment)
    if reason is None:
        return Operand(covering(array), array, array)
    return copy_input(spec, array, strides, reason)


def copy_input(spec: TensorSpec, array: Array, strides: Shape, reason: str) -> Operand:
    """Input with memory of its own. `Operand.load` copies the values."""
    if not _has_strides(array, strides):
        for axis in repeated_axes(array.shape, strides):
            if array.strides[axis] != 0:
                raise DmlcError(
                    f"the program reads {spec.name} with stride 0 along dimension {axis}, "
                    "and the array given has elements of its own there",
                    notes=["give an array that repeats: numpy.broadcast_to(array, sizes)"],
                )
        if may_repeat(array.shape, strides):
            raise DmlcError(
                f"the program reads {spec.name} with the overlapping strides "
                f"{show_shape(strides)}, and the array given is laid out in another way"
            )
    operand = _own_memory(spec.dtype, array.shape, strides, LARGE)
    operand.array = array
    operand.reason = reason
    return operand


def place_output(
    spec: TensorSpec, array: Array, shape: Shape, gaps: bool, alignment: int = 1
) -> Operand:
    """Output array of the caller, checked by `check_output`. `gaps` says whether the memory between
    its elements may be part of the kernel's buffer."""
    strides = element_strides(spec, shape)
    reason = _reason_to_copy(array, strides, alignment)
    if reason is None and not gaps and span(shape, strides) != array.size:
        reason = "its elements have gaps between them, and the device has memory of its own"
    if reason is None:
        return Operand(covering(array), array, array)
    operand = _own_memory(spec.dtype, shape, strides, LARGE)
    operand.array = array
    operand.reason = reason
    return operand


def new_output(spec: TensorSpec, shape: Shape, large: int) -> Operand:
    """New output array; one of `large` bytes or more starts at a cache line. Raises
    `UnsupportedError` if there is no memory for it."""
    try:
        return _own_memory(spec.dtype, shape, element_strides(spec, shape), large)
    except (MemoryError, ValueError):
        # NumPy has the second for more bytes than can be addressed.
        size = math.prod(shape) * spec.dtype.bytes
        raise UnsupportedError(
            f"the output {spec.name} has the sizes {show_shape(shape)}, and there is no memory "
            f"for its {size} bytes"
        ) from None


def _own_memory(dtype: DataType, shape: Shape, strides: Shape, large: int) -> Operand:
    if strides == packed(shape):
        made = empty(shape, dtype.dtype, large)
        return Operand(made, made, made)
    # Gaps between elements are never written, so they are cleared rather than left to chance.
    memory = np.zeros(span(shape, strides), dtype.dtype)
    steps = tuple(s * memory.itemsize for s in strides)
    view = np.lib.stride_tricks.as_strided(memory, shape, steps)
    return Operand(memory, view, view)


LARGE = 1 << 20
"""Default size in bytes from which `empty` aligns arrays."""
_LINE = 64


def empty(shape: Shape, dtype: np.dtype[Any], large: int) -> Array:
    """New packed array. One of `large` bytes or more starts at a cache line, where a kernel can use
    non-temporal stores; NumPy alone would start it 16 bytes into one."""
    size = math.prod(shape) * dtype.itemsize
    if size < large:
        return np.empty(shape, dtype)
    raw = np.empty(size + _LINE, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + size].view(dtype).reshape(shape)


def packed(shape: Shape) -> Shape:
    """Strides in elements of a packed tensor of these sizes."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def element_strides(spec: TensorSpec, shape: Shape) -> Shape:
    """Strides in elements of a tensor with these sizes."""
    return packed(shape) if spec.strides is None else spec.strides


def span(shape: Shape, strides: Shape) -> int:
    """Number of elements of memory between a strided tensor's first and last element, both
    included."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def tensor_bytes(spec: TensorSpec, sizes: Mapping[str, int]) -> int:
    """Size in bytes of a tensor's memory, from its first element to its last, for these values of
    the program's symbols."""
    shape = tuple(evaluate_size(extent, sizes) for extent in spec.extents)
    return span(shape, element_strides(spec, shape)) * spec.dtype.bytes


def repeated_axes(shape: Shape, strides: Shape) -> list[int]:
    """Axes of stride 0 with several elements."""
    return [k for k, (n, s) in enumerate(zip(shape, strides, strict=True)) if n > 1 and s == 0]


def may_repeat(shape: Shape, strides: Shape) -> bool:
    """Whether two elements may share memory, apart from axes of stride 0. False is certain."""
    if 0 in shape:
        return False
    reach = 1
    for step, size in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1 and s):
        if step < reach:
            return True
        reach += step * (size - 1)
    return False


def _repeats(array: Array) -> bool:
    """Whether two elements of an array may share memory."""
    steps = tuple(abs(s) for s in array.strides)
    if repeated_axes(array.shape, steps) and array.size:
        return True
    scaled = tuple(s // array.itemsize for s in steps)
    return may_repeat(array.shape, scaled)


def _has_strides(array: Array, strides: Shape) -> bool:
    size = array.itemsize
    return all(
        extent <= 1 or step == wanted * size
        for extent, step, wanted in zip(array.shape, array.strides, strides, strict=True)
    )


def _reason_to_copy(array: Array, strides: Shape, alignment: int) -> str | None:
    """Reason that this array's own memory cannot be the kernel's buffer, or None."""
    if not array.dtype.isnative:
        return "its bytes are in the other order"
    if not array.flags.aligned:
        return "its memory is not aligned to its element size"
    if array.ctypes.data % alignment:
        return f"its memory does not begin at a multiple of {alignment} bytes, as kernels read it"
    if strides == packed(array.shape):
        return None if array.flags.c_contiguous else "it is not packed in C order"
    if not _has_strides(array, strides):
        return "its strides are not the ones the program was compiled for"
    return None


def covering(array: Array) -> Array:
    """Memory from an array's first element to its last, as a view: the array itself if it is
    contiguous. No stride may be negative."""
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return array
    strides = tuple(s // array.itemsize for s in array.strides)
    return np.lib.stride_tricks.as_strided(
        array, (span(array.shape, strides),), (array.itemsize,), writeable=array.flags.writeable
    )


def buffer_strides(array: Array) -> Shape | None:
    """Strides in elements of an array that can be a buffer in place, or None.

    A buffer cannot have negative strides, strides between elements, unaligned memory, or swapped
    bytes. The stride of an axis of size 1 is never used, and is given as that of a packed tensor.
    """
    if not array.dtype.isnative or not array.flags.aligned:
        return None
    size = array.itemsize
    strides: list[int] = []
    for extent, step, tight in zip(array.shape, array.strides, packed(array.shape), strict=True):
        if extent <= 1:
            strides.append(tight)
        elif step < 0 or step % size:
            return None
        else:
            strides.append(step // size)
    return tuple(strides)
