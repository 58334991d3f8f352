"""Candidate implementations of an operator: kernels in files; `function` has Python functions.

A candidate states which calls it takes and computes a case. A kernel becomes a `Program` for each
call, which the usual runtimes run, with guard words around each tensor.
"""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from dmlc.binding import Operator, TensorDesc, ir_name
from dmlc.codegen.targets import find_target
from dmlc.devices import load_on
from dmlc.known_answers import find_trusted
from dmlc.program import (
    BufferBinding,
    Dispatch,
    KernelSource,
    Program,
    Role,
    ScalarBinding,
    TensorSpec,
)
from dmlc.runtime.arrays import fixed_shape
from dmlc.runtime.fences import as_bits, run_between_guards
from dmlc.runtime.floats import FloatPromises
from dmlc.runtime.interface import AnyDevice, AnyExecutable
from dmlc.scalars import Array
from dmlc.source import DmlcError, UnsupportedError, check_known, counted, find_named, join_words
from dmlc.testing.case import Call, Case
from dmlc.testing.declared import (
    SHADER_MODEL,
    Declared,
    DeclaredBuffer,
    DeclaredScalar,
    check_items,
    read_kernel,
    read_notes,
    turn_order,
)
from dmlc.testing.expressions import (
    Formula,
    OutsideError,
    Shape,
    list_names,
    list_values,
    read_formula,
    read_named,
)

DEVICES = {"HLSL": ("vulkan", "d3d12"), "SPIR-V": ("vulkan",), "OpenCL C": ("opencl",),
           "WGSL": ("wgpu",)}  # fmt: skip
"""Default devices of kernels, by target."""
_MOST_COUNT = (1 << 32) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Runs:
    """Results of a candidate's runs on one case."""

    results: Mapping[str, Mapping[str, Array]]
    """Outputs by name, of each run; the first is the plain one."""
    stray: tuple[str, ...] = ()
    """Stores out of bounds."""
    unsettled: tuple[str, ...] = ()
    """Results read from memory outside the tensors, or from uninitialised memory."""


class Candidate(Protocol):
    """Candidate implementation of an operator."""

    @property
    def operator(self) -> Operator: ...

    @property
    def kept(self) -> Mapping[str, str]:
        """Description that recreates it, for failures that are kept; empty if impossible."""
        ...

    @property
    def name(self) -> str:
        """Name and device in reports."""
        ...

    @property
    def floats(self) -> FloatPromises:
        """Floating-point promises of its device."""
        ...

    @property
    def fixed(self) -> Mapping[str, Any]:
        """Values that its condition on calls fixes, by name."""
        ...

    def fit(self, call: Call) -> dict[str, TensorDesc]:
        """Tensors of a call, changed towards those that the candidate takes: with its data types,
        and without optional tensors that it lacks."""
        ...

    def adapt(self, call: Call) -> Call:
        """Call in the candidate's form: packed if it reads no strides. Raises `OutsideError` for a
        call that it does not take."""
        ...

    def run(self, case: Case) -> Runs:
        """Results of a case."""
        ...

    def describe(self) -> list[str]:
        """Description of its bindings, one per line."""
        ...

    def count_group(self) -> int | None:
        """Number of work items in a group; None without groups."""
        ...

    def count_items(self, call: Call) -> int | None:
        """Number of work items launched for a call; None without work items."""
        ...


# Kernels --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Binding of a kernel to an operator, in the words of the command line; an empty field follows
    from the kernel's names. Lines of the kernel's file that begin with `// dmlc:` are
    equivalent."""

    entry: str = ""
    """Kernel's function; required if the file has several."""
    bindings: str = ""
    """`NAME=TENSOR` for buffers and `NAME=FORMULA` for scalar arguments, separated by commas."""
    groups: str = ""
    """Numbers of groups along x, y and z, as formulas separated by commas."""
    group_size: str = ""
    """Numbers of work items in a group along x, y and z, for OpenCL C without
    `reqd_work_group_size`."""
    where: str = ""
    """Condition on the calls that the kernel takes."""

    def over(self, notes: Options) -> Options:
        """These options, with the file's notes for the empty ones."""
        own = {n: v for n, v in dataclasses.asdict(self).items() if v}
        return dataclasses.replace(notes, **own)


def read_options(path: str | Path) -> Options:
    """Options in the notes of a kernel's file. Raises `DmlcError` for an unknown word."""
    try:
        words = shlex.split(read_notes(path))
    except ValueError as error:
        raise DmlcError(f"'{path}': its line '// dmlc:' is not closed: {error}") from None
    known = {f"--{f.name.replace('_', '-')}": f.name for f in dataclasses.fields(Options)}
    found: dict[str, str] = {}
    for option, value in zip(words[::2], [*words[1::2], ""], strict=False):
        found[find_named("option in '// dmlc:'", option, known)] = value
    return Options(**found)


class Kernel:
    """Kernel in a file, as an implementation of an operator on a device."""

    def __init__(
        self,
        path: str | Path,
        operator: Operator,
        options: Options = Options(),
        device: str | None = None,
    ) -> None:
        """Raises `DmlcError` for a kernel that does not compile or declares unsupported arguments,
        and for an unknown name; `UnavailableError` without a device for its language."""
        self.operator = operator
        options = options.over(read_options(path))
        self.declared: Declared = read_kernel(path, options.entry or None)
        self._items = check_items(self.declared, _read_items(options.group_size))
        self._device = _find_device(self.declared, device)
        self._turned = turn_order(self.declared)
        rows = operator.definition.newest.tensors
        if any(row.array for row in rows):
            raise UnsupportedError(f"{operator.name} takes arrays of tensors: no kernel binds them")
        named = read_named(options.bindings, "--bindings") if options.bindings else {}
        declared = {b.name for b in self.declared.buffers} | {s.name for s in self.declared.scalars}
        check_known("argument in --bindings", sorted(declared), *named)
        self._tensors = _bind_buffers(self.declared, operator, named)
        self._scalars = _bind_scalars(self.declared, operator, named, self._tensors)
        first = next(row.name for row in rows if row.output)
        groups = options.groups or f"ceil({first}.size / threads)"
        self._groups = read_formula(f"({groups},)", "--groups")
        self._where = read_formula(options.where, "--where") if options.where else None
        names = list_names(operator) | {*self._tensors}
        for formula in self._scalars.values():
            formula.check("--bindings", names)
        names |= {*self._scalars, "threads"}
        self._groups.check("--groups", names)
        if self._where is not None:
            self._where.check("--where", names)
        formulas = [*self._scalars.values(), self._groups]
        strided = {name for formula in formulas for name in formula.strided}
        self._strided = {self._tensors.get(name, name) for name in strided}
        self._groups_text = groups
        said = {n: str(v) for n, v in dataclasses.asdict(options).items() if v}
        place = {"path": str(Path(path).resolve()), "device": device or self._device.runtime}
        self.kept: Mapping[str, str] = place | said

    @property
    def name(self) -> str:
        return f"{Path(self.declared.path).name} ({self._device.runtime})"

    @property
    def floats(self) -> FloatPromises:
        return self._device.floats

    def describe(self) -> list[str]:
        kernel = f"{self.declared.path}: {self.declared.entry}, {self.declared.language}"
        lines = [f"{kernel} on {self._device.name}"]
        lines += [f"  {b.name} = {self._tensors[b.name]}" for b in self.declared.buffers]
        lines += [f"  {name} = {formula.text}" for name, formula in self._scalars.items()]
        items = " x ".join(map(str, self._items))
        lines.append(f"  groups of {items}: {self._groups_text}")
        if self._where is not None:
            lines.append(f"  where {self._where.text}")
        packed = [t for t in self._tensors.values() if t not in self._strided]
        if packed:
            lines.append(f"  packed, for no argument has their strides: {', '.join(packed)}")
        if self._turned is None:
            lines.append("  races: by running again alone, for this text cannot be turned round")
        return lines

    # Calls ------------------------------------------------------------------------------------

    @property
    def fixed(self) -> Mapping[str, Any]:
        return {} if self._where is None else self._where.fixed

    def fit(self, call: Call) -> dict[str, TensorDesc]:
        buffers = {self._tensors[b.name]: b for b in self.declared.buffers}
        optional = {row.name for row in self.operator.definition.newest.tensors if row.optional}
        found: dict[str, TensorDesc] = {}
        for name, desc in call.tensors.items():
            if name in buffers and desc.data_type not in buffers[name].types:
                desc = TensorDesc(buffers[name].types[0], desc.sizes, desc.strides)
            if name in buffers or name not in optional:
                found[name] = desc
        return found

    def adapt(self, call: Call) -> Call:
        buffers = {self._tensors[b.name]: b for b in self.declared.buffers}
        described: dict[str, TensorDesc] = {}
        for name, desc in call.tensors.items():
            if name not in buffers:
                raise OutsideError(f"it has no buffer for {name}")
            if desc.data_type not in buffers[name].types:
                types = " or ".join(t.name for t in buffers[name].types)
                raise OutsideError(f"{name} is not {types}")
            if name not in self._strided:
                desc = TensorDesc(desc.data_type, desc.sizes)
            described[name] = desc
        absent = [name for name in buffers if name not in call.tensors]
        if absent:
            raise OutsideError(f"it needs {absent[0]}")
        made = Call(call.operator, described, call.attributes)
        values = self._evaluate(made)
        if self._where is not None and not self._where.evaluate(values):
            raise OutsideError(f"it takes calls where {self._where.text}")
        _ = self._count_groups(values)
        return made

    def _evaluate(self, call: Call) -> dict[str, Any]:
        values = list_values(call)
        # A tensor's own name is before that of a buffer.
        values = {name: values.get(t) for name, t in self._tensors.items()} | values
        values["threads"] = math.prod(self._items)
        own = {name: formula.evaluate(values) for name, formula in self._scalars.items()}
        for scalar in self.declared.scalars:
            _ = list(_encode(scalar, own[scalar.name]))
        return values | own

    def _count_groups(self, values: Mapping[str, Any]) -> tuple[int, int, int]:
        found = self._groups.evaluate(values)
        x, y, z = [*found, 1, 1][:3]
        if len(found) > 3 or not all(isinstance(n, int) and n >= 0 for n in (x, y, z)):
            shown = ", ".join(map(str, found))
            raise DmlcError(
                f"--groups gives {shown}, and groups are one to three whole numbers",
                notes=["ceil(...) makes a quotient whole"],
            )
        return x, y, z

    # Runs -------------------------------------------------------------------------------------

    def make_program(self, call: Call, declared: Declared | None = None) -> Program:
        """Program of one call."""
        source = declared or self.declared
        values = self._evaluate(call)
        groups = self._count_groups(values)
        outputs = call.outputs
        tensors = tuple(
            TensorSpec(
                ir_name(name),
                Role.OUTPUT if name in outputs else Role.INPUT,
                desc.data_type,
                desc.shape,
                desc.strides,
            )
            for name, desc in call.tensors.items()
        )
        buffers = tuple(
            BufferBinding(
                b.name,
                ir_name(self._tensors[b.name]),
                call.tensors[self._tensors[b.name]].data_type,
                b.written,
                True,
                b.slot,
                b.unit,
            )
            for b in source.buffers
        )
        scalars = tuple(
            ScalarBinding(s.name, bits, s.bits, s.slot, s.offset + k * s.bits // 8)
            for s in source.scalars
            for k, bits in enumerate(_encode(s, values[s.name]))
        )
        count = math.prod(self._items)
        launch = Dispatch(math.prod(groups), 1, count, shape=self._items, grid=groups)
        kernel = KernelSource(
            self.declared.entry, source.entry, source.source, buffers, scalars, launch,
            shader_model=SHADER_MODEL, spirv=source.spirv,
        )  # fmt: skip
        language = find_target(source.target).language
        return Program("candidate", language, "gpu", tensors, (kernel,), _MOST_COUNT)

    def run(self, case: Case) -> Runs:
        call = case.call
        program = self.make_program(call)
        shapes = {s.name: fixed_shape(s) for s in program.outputs}

        def go(made: Program, seed: int) -> tuple[dict[str, Array], list[str]]:
            found, stray = run_between_guards(made, self._load, case.given, shapes, seed)
            return call.name_outputs(found), stray

        first, stray = go(program, 0)
        if stray:
            # A further run could spoil more than the words around the tensors.
            return Runs({"": first}, tuple(stray))
        results = {"": first, "a second run": go(program, 0)[0]}
        if self._turned is not None:
            turned = self.make_program(call, self._turned)
            results["a run with the work items in reverse"] = go(turned, 0)[0]
        other = go(program, 1)[0]
        return Runs(results, unsettled=tuple(_compare(first, results["a second run"], other)))

    def _load(self, program: Program) -> AnyExecutable:
        return load_on(program, self._device)

    def prepare(self, case: Case) -> tuple[AnyExecutable, dict[str, Array], dict[str, Array]]:
        """Executable of a case, with its inputs and outputs, for timing."""
        call = case.call
        outputs = {ir_name(name): array for name, array in call.make_outputs().items()}
        return self._load(self.make_program(call)), case.given, outputs

    def count_group(self) -> int | None:
        return math.prod(self._items)

    def count_items(self, call: Call) -> int | None:
        return math.prod(self._count_groups(self._evaluate(call))) * math.prod(self._items)

    @property
    def device(self) -> AnyDevice:
        """Device it runs on."""
        return self._device


def _find_device(declared: Declared, device: str | None) -> AnyDevice:
    usable = DEVICES[declared.language]
    found = find_trusted(device or usable[0])
    if found is None or found.runtime not in usable:
        raise UnsupportedError(
            f"'{declared.path}' is {declared.language}, which {device} does not run",
            notes=[f"--device {join_words(usable)} does"],
        )
    return found


def _read_items(text: str) -> tuple[int, int, int] | None:
    if not text:
        return None
    words = [word.strip() for word in text.split(",")]
    if len(words) > 3 or not all(word.isdecimal() and int(word) for word in words):
        raise DmlcError(f"--group-size: '{text}' is not one to three whole numbers, such as 64")
    x, y, z = [*map(int, words), 1, 1][:3]
    return x, y, z


def _plain(name: str) -> str:
    """Name for comparisons: without case, underscores and the suffix Tensor."""
    return re.sub(r"tensor$", "", name.replace("_", "").lower())


def _bind_buffers(
    declared: Declared, operator: Operator, named: Mapping[str, Formula]
) -> dict[str, str]:
    """Tensor of each buffer: the one given in `named`, or the one of that name; if no name matches,
    in table order."""
    rows = operator.definition.newest.tensors
    known = [row.name for row in rows]
    found: dict[str, str] = {}
    for buffer in declared.buffers:
        if buffer.name in named:
            name = named[buffer.name].text
            check_known(f"tensor for {buffer.name}", known, name)
            found[buffer.name] = name
            continue
        alike = [n for n in known if n == buffer.name] or [
            n for n in known if _plain(n) == _plain(buffer.name)
        ]
        if len(alike) == 1:
            found[buffer.name] = alike[0]
    if not found:
        for output in (False, True):
            own = [b for b in declared.buffers if b.written is output]
            tensors = [row.name for row in rows if row.output is output]
            if len(own) == len(tensors):
                found |= {b.name: t for b, t in zip(own, tensors, strict=True)}
    for buffer in declared.buffers:
        if buffer.name not in found:
            free = [n for n in known if n not in found.values()]
            raise DmlcError(
                f"'{declared.path}': which tensor the buffer {buffer.name} is, is not said",
                notes=[f'--bindings "{buffer.name}={free[0] if free else known[0]}" says it; '
                       f"{operator.name} has {', '.join(known)}"],
            )  # fmt: skip
    _check_bound(declared, operator, found)
    return found


def _check_bound(declared: Declared, operator: Operator, found: Mapping[str, str]) -> None:
    rows = {row.name: row for row in operator.definition.newest.tensors}
    taken: dict[str, DeclaredBuffer] = {}
    for buffer in declared.buffers:
        name = found[buffer.name]
        if name in taken:
            raise DmlcError(f"the buffers {taken[name].name} and {buffer.name} are both {name}")
        taken[name] = buffer
        if rows[name].output and not buffer.written:
            raise DmlcError(f"the kernel cannot store into {buffer.name}, which is {name}")
        if not set(rows[name].dtypes) & set(buffer.types):
            listed = ", ".join(t.name for t in rows[name].dtypes)
            raise DmlcError(f"{buffer} is {name}, which has none of its types: {listed}")
    for name, row in rows.items():
        if name not in taken and not row.optional:
            raise DmlcError(
                f"'{declared.path}' has no buffer for {name}",
                notes=[f"it has {', '.join(map(str, declared.buffers)) or 'none'}"],
            )


def _bind_scalars(
    declared: Declared,
    operator: Operator,
    named: Mapping[str, Formula],
    tensors: Mapping[str, str],
) -> dict[str, Formula]:
    """Formula of each scalar argument: the one given in `named`, or that of its name."""
    known = dict(_list_usual(operator, tensors))
    found: dict[str, Formula] = {}
    for scalar in declared.scalars:
        text = known.get(_plain(scalar.name))
        if scalar.name in named:
            found[scalar.name] = named[scalar.name]
        elif text is not None:
            found[scalar.name] = read_formula(text, "--bindings")
        else:
            output = next(r.name for r in operator.definition.newest.tensors if r.output)
            raise DmlcError(
                f"'{declared.path}': what the argument {scalar.name} is given is not said",
                notes=[f'--bindings "{scalar.name}={output}.size" says it, or names it otherwise: '
                       "a size, a stride, an attribute"],
            )  # fmt: skip
    return found


def _list_usual(operator: Operator, tensors: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Argument names that imply their formulas, with these."""
    for attribute in operator.definition.attributes:
        yield _plain(attribute.name), attribute.name
    called = [(row.name, row.name) for row in operator.definition.newest.tensors]
    for name, tensor in [*called, *tensors.items()]:
        for base in (_plain(name), name.replace("_", "").lower()):
            for part in ("size", "rank", "sizes", "strides"):
                yield f"{base}{part}", f"{tensor}.{part}"
            for part in ("size", "stride"):
                yield from ((f"{base}{part}{k}", f"{tensor}.{part}s[{k}]") for k in range(8))


def _encode(scalar: DeclaredScalar, value: Any) -> Iterator[int]:
    """Bits of an argument's components. Raises `OutsideError` for too many, and `DmlcError` for a
    value that is no number."""
    items: list[Any] = [value]
    if isinstance(value, tuple):
        items = list(cast("tuple[Any, ...]", value))
    if len(items) > scalar.count:
        raise OutsideError(f"{scalar.name} has {counted(scalar.count, 'component')}")
    items += [0] * (scalar.count - len(items))
    for item in items:
        if isinstance(item, (str, Shape)) or item is None:
            shown = item.name if isinstance(item, Shape) else item
            raise DmlcError(
                f"the argument {scalar.name} is given {shown}, which is no number",
                notes=["compare a member of an enum, as in TransA == TRANSPOSE, or name a part of "
                       "a tensor, as in X.size"],
            )  # fmt: skip
        if scalar.kind == "float":
            form = "<f" if scalar.bits == 32 else "<d"
            with np.errstate(all="ignore"):
                number = float(np.float32(item)) if scalar.bits == 32 else float(item)
            yield int.from_bytes(struct.pack(form, number), "little")
        else:
            if int(item) != item:
                raise DmlcError(
                    f"the argument {scalar.name} is given {item}, which is not whole",
                    notes=["ceil(...) and floor(...) make it whole"],
                )
            yield int(item) & ((1 << scalar.bits) - 1)


def _compare(
    first: Mapping[str, Array], second: Mapping[str, Array], other: Mapping[str, Array]
) -> Iterator[str]:
    """Elements that are equal in two runs, and differ in one with other bytes around the
    tensors."""
    for name, one in first.items():
        steady = as_bits(one) == as_bits(second[name])
        places = np.flatnonzero(steady & (as_bits(one) != as_bits(other[name])))
        if places.size:
            at = tuple(int(k) for k in np.unravel_index(int(places[0]), one.shape))
            yield (
                f"{name}{list(at)} is {one[at]} or {other[name][at]}, by the bytes outside the "
                "elements of all tensors: it was not stored, or comes from a read out of bounds "
                f"({places.size:,} of {one.size:,} elements)"
            )
