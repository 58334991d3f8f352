"""Compiled program: everything a host needs to run it, as data.

A `Program` has sources and their launches. All runtimes, and hosts that know nothing of dmlc, work
from it: `manifest.json` has the same content (`Program.manifest`). It knows no IR; nothing here
depends on how the kernels were made.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from dmlc import __version__
from dmlc.files import name_file, write_files
from dmlc.matrices import Instruction, Offer
from dmlc.parameters import expect, expect_path, expect_text
from dmlc.scalars import DataType
from dmlc.shader_model import RegisterShifts
from dmlc.sizes import choose_where, evaluate_size, find_symbols, multiply, show_count
from dmlc.source import Diagnostic, Source, UnsupportedError, find_named, list_names

VERSION = __version__
"""Version of the compiler in generated files and manifests."""

MANIFEST_VERSION = 1
MANIFEST = "manifest.json"
"""File name of a manifest."""

FLOAT_WIDTHS = (16, 32, 64)
"""Widths of floats in bits."""

Extent: TypeAlias = int | str


class Role(enum.Enum):
    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"
    CONSTANT = "constant"
    """Tensor with the same values in every run, which the program contains."""


@dataclasses.dataclass(frozen=True, slots=True)
class TensorSpec:
    """Tensor of the program. `extents` are sizes, some of which may be symbols, known at run time.
    If the one symbol counts all elements, any packed array with that many is accepted, of any
    shape."""

    name: str
    role: Role
    dtype: DataType
    extents: tuple[Extent, ...]
    strides: tuple[int, ...] | None = None
    """Strides in elements; None for packed, last axis fastest."""
    in_place: tuple[str, ...] = ()
    """For an output: inputs whose memory it may be stored over, element for element."""
    values: tuple[bool | int | float, ...] = ()
    """For a constant: its elements, last axis fastest."""
    offset: int | None = None
    """For scratch: byte offset in the one allocation that all scratch may share; None if a size is
    known only at run time, and for all other tensors."""
    lifetime: tuple[int, int] | None = None
    """For scratch: numbers of the kernels that use it first and last. Scratch tensors with disjoint
    lifetimes may share memory."""

    @property
    def bytes(self) -> int | None:
        """Least size of its buffer in bytes, rounded up to 4 as DirectML does; None if sizes are
        known only at run time."""
        sizes = [e for e in self.extents if isinstance(e, int)]
        if len(sizes) != len(self.extents):
            return None
        if math.prod(sizes) == 0:
            return 0
        elements = math.prod(sizes)
        if self.strides is not None:
            reach = zip(sizes, self.strides, strict=True)
            elements = 1 + sum((size - 1) * step for size, step in reach)
        return -(-elements * self.dtype.bytes // 4) * 4


@dataclasses.dataclass(frozen=True, slots=True)
class BufferBinding:
    """Buffer argument of a kernel, in the order of the kernel's arguments. The meaning of `slot`
    depends on the language."""

    name: str
    """Name in the kernel's source."""
    tensor: str
    dtype: DataType
    written: bool
    read: bool
    slot: int
    """OpenCL: the argument. HLSL: the register, `t<slot>` when read, `u<slot>` when written."""
    structure_bytes: int = 0
    """HLSL and OpenCL: size in bytes, and alignment, of the unit that the buffer is indexed in.
    More than the tensor's element if several share a word or are accessed together."""

    @property
    def register(self) -> str:
        """HLSL: the register with its letter."""
        return f"{'u' if self.written else 't'}{self.slot}"


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarBinding:
    """Scalar argument. OpenCL: argument number `slot`. HLSL: at `offset` bytes of cbuffer b0."""

    name: str
    """Name in the kernel's source."""
    value: str | int
    """Value: a number fixed at compile time; or a sum of products of symbols and numbers, in C."""
    bits: int
    """Width of the unsigned integer: 32 or 64."""
    slot: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Dispatch:
    """`groups = ceil(count / per_group)` groups of `group_size` work items along one dimension.

    `count` is a number, or a sum of products of symbols and numbers. Where a target limits one
    dimension (`row` groups; 65,535 in D3D12), more groups go out as `(row, ceil(groups / row), 1)`,
    and the kernel numbers them `y * row + x`.
    """

    count: int | str
    per_group: int
    group_size: int
    row: int | None = None
    shape: tuple[int, int, int] | None = dataclasses.field(default=None, repr=False)
    """Work items in a group along x, y and z, in a foreign kernel; None: all along x."""
    grid: tuple[int, int, int] | None = dataclasses.field(default=None, repr=False)
    """Groups along x, y and z, in a foreign kernel, instead of those computed from `count`."""

    @property
    def items(self) -> tuple[int, int, int]:
        """Work items in a group along x, y and z."""
        return self.shape or (self.group_size, 1, 1)

    @property
    def is_chosen(self) -> bool:
        """Whether sizes that are left open decide if there are groups: a version's dispatch."""
        return "?" in str(self.count)

    @property
    def rule(self) -> str:
        """Number of groups in words."""
        count, row = self.count, self.row
        text = f"ceil({count} / {self.per_group})" if self.per_group > 1 else str(count)
        text += " groups along x"
        if row is None:
            return text
        return f"{text}; where that is more than {row}, ({row}, ceil(groups / {row}), 1)"

    def groups(self, sizes: dict[str, int]) -> tuple[int, int, int]:
        """Number of groups along x, y and z, with symbols bound by `sizes`."""
        if self.grid is not None:
            return self.grid
        count = evaluate_size(self.count, sizes)
        total = -(-count // self.per_group)
        if self.row is None or total <= self.row:
            return (total, 1, 1)
        return (self.row, -(-total // self.row), 1)


STEP = "step"
"""Value of a scalar argument that is the index of a loop's step."""


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """Loop over kernels, from number `first` to `last`, run `steps` times, with a barrier in
    between. Their scalars `step` count from 0 up, or from the last step down if `backwards`."""

    first: int
    last: int
    steps: Extent
    """Number of steps: a number, or a sum of products of symbols and numbers, in C."""
    backwards: bool = False

    def numbers(self, sizes: Mapping[str, int]) -> range:
        """Steps in execution order, with symbols bound by `sizes`."""
        return range(evaluate_size(self.steps, sizes))[:: -1 if self.backwards else 1]


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a kernel's launch on a GPU, counted without running it."""

    groups: int
    threads: int
    steps: float | None
    """Loads, and iterations of loops without any, of the busiest thread; None if they depend on
    tensors' elements."""
    total_steps: float | None
    """Steps of all threads."""
    reads_per_output: float
    """Elements that all threads load, per element of the largest tensor that the kernel writes."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON: counts are whole, and ratios are rounded."""
        return dataclasses.asdict(self) | {
            "steps": None if self.steps is None else round(self.steps),
            "total_steps": None if self.total_steps is None else round(self.total_steps),
            "reads_per_output": round(self.reads_per_output, 3),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Part of the compiled function that a kernel computes."""

    stages: tuple[str, ...] = ()
    """Names of the stages it stores or reduces, without inlined ones."""
    reasons: tuple[str, ...] = ()
    """Reasons of fusion for combining them, and for keeping others apart: clauses of a sentence."""
    traffic: tuple[int, int] | None = None
    """Bytes read and written, a tensor as a whole in every pass over it; None if a size is known
    only at run time."""
    figures: Figures | None = None
    """Figures of a kernel for GPUs; None also if a size is known only at run time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unfused:
    """Compiled function without fusion: each stage a kernel of its own."""

    kernels: int
    traffic: tuple[int, int] | None
    """Bytes read and written in all, as those of an `Origin`."""


class Interpreted(Protocol):
    """Kernel in a form that can be interpreted."""

    def run(
        self, source: KernelSource, memories: Sequence[Any], sizes: Mapping[str, int], taken: Any, /
    ) -> None:
        """Runs one launch on flat arrays, one for each buffer in order; `sizes` has the symbols,
        and `taken` the freedoms that the device takes."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class KernelSource:
    """Kernel: its source text (a whole file), entry point, arguments and launch."""

    name: str
    """Name, unique in the program; a safe file stem."""
    entry_point: str
    source: str = dataclasses.field(repr=False)
    buffers: tuple[BufferBinding, ...]
    scalars: tuple[ScalarBinding, ...]
    dispatch: Dispatch
    after: tuple[int, ...] = ()
    """Numbers of earlier kernels whose stores this one reads, or which last used memory that it
    stores over: a barrier is needed after them. They in turn wait for earlier users."""
    shader_model: str = ""
    """HLSL: shader model it is written for, as in `6.2`."""
    origin: Origin = Origin()
    row: str = dataclasses.field(default="", repr=False)
    """Row of the schedule table that its numbers are from, or empty."""
    float_controls: tuple[int, ...] = FLOAT_WIDTHS
    """HLSL: float widths, in bits, for which its SPIR-V requests that drivers keep NaN, infinities
    and the signs of zeros."""
    interpreted: Interpreted | None = dataclasses.field(default=None, compare=False, repr=False)
    """Kernel that a simulated device runs instead of the source."""
    matrix: Instruction | None = dataclasses.field(default=None, repr=False)
    """HLSL: matrix instruction that it uses. Its source is for Vulkan only."""
    spirv: bytes = dataclasses.field(default=b"", repr=False)
    """HLSL: SPIR-V of a foreign kernel without a source."""
    alternatives: tuple[KernelSource, ...] = dataclasses.field(default=(), repr=False)
    """Equivalent kernels on the same buffers. A host may replace this one by the first that its
    device supports."""

    @property
    def shifts(self) -> RegisterShifts:
        """HLSL: the bindings of its registers in Vulkan."""
        counts = (
            max((b.slot + 1 for b in self.buffers if b.written is written), default=0)
            for written in (False, True)
        )
        return RegisterShifts.for_counts(*counts)

    def choose(self, offer: Offer) -> KernelSource:
        """First alternative supported by a device's matrix instructions, or this kernel."""
        usable = (k for k in self.alternatives if k.matrix is not None and offer.has(k.matrix))
        return next(usable, self)


@dataclasses.dataclass(frozen=True, slots=True)
class Language:
    """Output language as hosts see it: its names, and its own fields in the manifest of a
    kernel."""

    target: str
    """Target name, such as `hlsl`."""
    title: str
    """Name for people, such as `HLSL`."""
    suffix: str
    """Suffix of a source file, with its dot."""
    list_needs: Callable[[str], list[str]]
    """Required device features of a source that not every device has: `64-bit integers`, for
    example."""
    describe_buffer: Callable[[BufferBinding], dict[str, Any]]
    """Fields of a buffer's binding."""
    describe_scalar: Callable[[ScalarBinding], dict[str, Any]]
    describe_kernel: Callable[[KernelSource], dict[str, Any]]
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str], hash=False)
    """Fields of a manifest about a whole program."""


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """Kernels in execution order, and the tensors they work on."""

    name: str
    language: Language = dataclasses.field(repr=False)
    profile: str
    tensors: tuple[TensorSpec, ...]
    kernels: tuple[KernelSource, ...]
    max_count: int
    """Largest value of a symbol, limited by the index width and by windows."""
    elementwise: bool = False
    """Whether all tensors are packed and of one size, and each element of a result depends only on
    the elements at the same index: a host may then run the program on ranges of its tensors that
    exceed one launch."""
    effort: float = 1.0
    """Approximate time relative to moving the bytes of its tensors once. A hint for a host that has
    several ways to run it; the manifest omits it."""
    checks: tuple[str, ...] = ()
    """Assumptions of its kernels about its symbols, as conditions in C such as `N != 1`."""
    unfused: Unfused | None = None
    """Function without fusion; None for foreign kernels."""
    repeats: tuple[Repeat, ...] = ()
    """Loops over kernels, in order and disjoint."""
    gpu_class: str = ""
    """Class of GPUs that it was compiled for; empty for any."""
    warnings: tuple[Diagnostic, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """Warnings about likely errors, and about slow code in its kernels, with the source location
    and a cure."""
    remake: Callable[[Source], Program] | None = dataclasses.field(
        default=None, compare=False, repr=False
    )
    """Compiles the same function with given schedules; None if this process has not compiled it
    from a function."""

    def with_schedule(self, text: str, filename: str = "<schedule>") -> Program:
        """Compiles the same function with your own schedules: the output of `dmlc ir --schedule`,
        edited.

        `text` has sections, each of which begins with `kernel NAME`, followed by the calls that
        make the kernel's loops, one per line. Kernels without a section have their default
        schedules, whatever an earlier `with_schedule` said. Raises `DmlcError`, with `filename` and
        the span in the text, for a call that would change a result or has nothing to apply to, and
        for unknown kernels; and `UnsupportedError` if this process has not compiled the program
        from a function.
        """
        expect_text("text", text)
        expect_text("filename", filename)
        if self.remake is None:
            raise UnsupportedError(f"{self.name} was not compiled from a function here")
        return self.remake(Source(filename, text))

    def with_alternatives(self, other: Program) -> Program:
        """Program whose kernels have those of another program that use matrix instructions as
        alternatives."""
        kernels: list[KernelSource] = []
        for kernel, made in zip(self.kernels, other.kernels, strict=True):
            if made.matrix is not None:
                name = f"{kernel.name}_{made.matrix.name.replace('/', '_')}"
                made = dataclasses.replace(made, name=name, after=kernel.after)
                alternatives = (*kernel.alternatives, made)
                kernel = dataclasses.replace(kernel, alternatives=alternatives)
            kernels.append(kernel)
        return dataclasses.replace(self, kernels=tuple(kernels))

    def choose(self, offer: Offer) -> Program:
        """Program with the kernels that suit a device's matrix instructions, and no
        alternatives."""
        chosen = (
            dataclasses.replace(kernel.choose(offer), after=kernel.after, alternatives=())
            for kernel in self.kernels
        )
        return dataclasses.replace(self, kernels=tuple(chosen))

    @property
    def matrices(self) -> tuple[Instruction, ...]:
        """Matrix instructions that its kernels or their alternatives use."""
        every = (each for kernel in self.kernels for each in (kernel, *kernel.alternatives))
        return tuple(dict.fromkeys(each.matrix for each in every if each.matrix is not None))

    @property
    def target(self) -> str:
        """Target it was compiled for: `opencl`, `hlsl`, ..."""
        return self.language.target

    def __repr__(self) -> str:
        given, found = ([t.name for t in each] for each in (self.inputs, self.outputs))
        kernels = f"{len(self.kernels)} kernel" + "s" * (len(self.kernels) != 1)
        return (
            f"<program {self.name}, {self.target} for {self.profile}: {list_names(given)} -> "
            f"{list_names(found)}, {kernels}>"
        )

    def tensor(self, name: str) -> TensorSpec:
        """Tensor of that name. Raises `UnknownNameError`."""
        expect_text("name", name, "the name of a tensor")
        return find_named("tensor", name, {tensor.name: tensor for tensor in self.tensors})

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(t for t in self.tensors if t.role is Role.INPUT)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(t for t in self.tensors if t.role is Role.OUTPUT)

    @property
    def alignments(self) -> dict[str, int]:
        """Required alignments of tensors in bytes, where these exceed an element."""
        found: dict[str, int] = {}
        for binding in (b for kernel in self.kernels for b in kernel.buffers):
            if binding.structure_bytes > binding.dtype.bytes:
                size = max(found.get(binding.tensor, 0), binding.structure_bytes)
                found[binding.tensor] = size
        return found

    @property
    def constants(self) -> tuple[TensorSpec, ...]:
        return tuple(t for t in self.tensors if t.role is Role.CONSTANT)

    @property
    def scratch(self) -> tuple[TensorSpec, ...]:
        return tuple(t for t in self.tensors if t.role is Role.SCRATCH)

    @property
    def scratch_bytes(self) -> int:
        """Size of the shared allocation of scratch tensors in bytes."""
        placed = [(t.offset, t.bytes) for t in self.scratch]
        return max((at + size for at, size in placed if at is not None and size), default=0)

    @property
    def peak_scratch(self) -> int | None:
        """Peak size of scratch in bytes; None if a size is known only at run time."""
        return None if any(t.offset is None for t in self.scratch) else self.scratch_bytes

    def refuse_repeats(self, why: str) -> None:
        """Raises `UnsupportedError` if there are loops over kernels; `why` is a clause that names
        who cannot run them."""
        if self.repeats:
            steps = show_count(self.repeats[0].steps)
            raise UnsupportedError(
                f"{self.name} has a loop of {steps} steps, and {why}", code="E0901"
            )

    def order(self, sizes: Mapping[str, int]) -> Iterator[tuple[int, dict[str, int]]]:
        """Numbers of the kernels in execution order, with symbols bound by `sizes`: each with the
        values of its scalars besides the sizes, which is the step."""
        for repeat, numbers in self.parts():
            if repeat is None:
                yield from ((number, {}) for number in numbers)
            else:
                steps = ({STEP: step} for step in repeat.numbers(sizes))
                yield from ((number, step) for step in steps for number in numbers)

    def parts(self) -> Iterator[tuple[Repeat | None, range]]:
        """Numbers of the kernels in execution order: those of each loop, and those between."""
        number = 0
        for repeat in self.repeats:
            yield None, range(number, repeat.first)
            number = repeat.last + 1
            yield repeat, range(repeat.first, number)
        yield None, range(number, len(self.kernels))

    @property
    def traffic(self) -> tuple[int, int] | None:
        """Bytes read and written by all kernels; None if a size is known only at run time."""
        found = [kernel.origin.traffic for kernel in self.kernels]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        return sum(read for read, _ in known), sum(written for _, written in known)

    def scratch_homes(self) -> dict[str, str]:
        """For hosts that bind whole buffers only: for each scratch tensor with an offset, the
        largest one of its type at the same offset. Their lifetimes are disjoint, so that the buffer
        of that one may hold them all."""
        placed = [t for t in self.scratch if t.offset is not None]
        homes: dict[tuple[int | None, DataType], TensorSpec] = {}
        for tensor in sorted(placed, key=lambda t: -(t.bytes or 0)):
            homes.setdefault((tensor.offset, tensor.dtype), tensor)
        return {t.name: homes[t.offset, t.dtype].name for t in placed}

    @property
    def symbols(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for tensor in self.tensors:
            found.update(dict.fromkeys(find_symbols(tensor.extents)))
        return tuple(found)

    @property
    def formulas(self) -> tuple[str, ...]:
        """Sizes at run time that its launches take, as formulas of symbols, sorted: counts of work,
        numbers of steps, and scalars, which are 0 for sizes that their kernel has no work for."""
        found: set[int | str] = {repeat.steps for repeat in self.repeats}
        for kernel in self.kernels:
            count = kernel.dispatch.count
            given = {s.value for s in kernel.scalars if isinstance(s.value, str)} - {STEP}
            found |= {count, *(v if v.isidentifier() else choose_where(count, v) for v in given)}
        return tuple(sorted(each for each in found if isinstance(each, str)))

    @property
    def counted(self) -> str | None:
        """Symbol that counts the elements of all tensors of run-time size, whatever their shape;
        None if symbols are sizes of axes, or there are none."""
        symbols = self.symbols
        own = (t.extents for t in self.tensors if any(isinstance(e, str) for e in t.extents))
        return symbols[0] if len(symbols) == 1 and all(e == symbols for e in own) else None

    def manifest(self) -> dict[str, Any]:
        """Plain data of the program: `manifest.json`, defined in `docs/reference/manifest.md`."""
        return {
            "version": MANIFEST_VERSION,
            "generator": f"dmlc {VERSION}",
            "name": self.name,
            "target": self.target,
            "profile": self.profile,
            **({"gpu_class": self.gpu_class} if self.gpu_class else {}),
            "symbols": {symbol: self._describe_symbol(symbol) for symbol in self.symbols},
            **({"checks": list(self.checks)} if self.checks else {}),
            "tensors": [_describe_tensor(t) for t in self.tensors],
            "kernels": [self._describe_kernel(kernel) for kernel in self.kernels],
            **(
                {"repeats": [self._describe_repeat(r) for r in self.repeats]}
                if self.repeats
                else {}
            ),
            "scratch_bytes": self.scratch_bytes,
            "elementwise": self.elementwise,
            "fusion": self._describe_fusion(),
            "files": _describe_files(self.list_files()),
            "order": "kernels run in the order listed; a barrier stands between a kernel and those "
            "it names in 'after'",
            **self.language.notes,
        }

    def _describe_symbol(self, symbol: str) -> dict[str, Any]:
        if self.counted is not None:
            meaning = "the number of elements of a packed tensor of any shape"
            return {"meaning": meaning, "max": self.max_count}
        places = [
            f"axis {axis} of {tensor.name}"
            for tensor in (*self.inputs, *self.outputs)
            for axis, extent in enumerate(tensor.extents)
            if extent == symbol
        ]
        return {"meaning": f"the size of {', '.join(places)}", "min": 1, "max": self.max_count}

    def _describe_fusion(self) -> dict[str, Any] | None:
        if self.unfused is None:
            return None
        before = self.unfused
        return {
            "before": {"kernels": before.kernels, **_describe_traffic(before.traffic)},
            "after": {"kernels": len(self.kernels), **_describe_traffic(self.traffic)},
            "peak_scratch": self.peak_scratch,
        }

    def _describe_kernel(self, kernel: KernelSource) -> dict[str, Any]:
        return {
            "name": kernel.name,
            "file": self.file_name(kernel),
            "entry_point": kernel.entry_point,
            "buffers": [self._describe_buffer(b) for b in kernel.buffers],
            "scalars": [self._describe_scalar(s) for s in kernel.scalars],
            "group_size": list(kernel.dispatch.items),
            "requires": self.language.list_needs(kernel.source),
            "dispatch": _describe_dispatch(kernel.dispatch),
            "after": [self.kernels[number].name for number in kernel.after],
            "stages": list(kernel.origin.stages),
            "reasons": list(kernel.origin.reasons),
            **({"row": kernel.row} if kernel.row else {}),
            **_describe_traffic(kernel.origin.traffic),
            "figures": None if kernel.origin.figures is None else kernel.origin.figures.to_json(),
            **self.language.describe_kernel(kernel),
            **({"matrix": kernel.matrix.to_json()} if kernel.matrix is not None else {}),
            **(
                {"alternatives": [self._describe_kernel(each) for each in kernel.alternatives]}
                if kernel.alternatives
                else {}
            ),
        }

    def _describe_repeat(self, repeat: Repeat) -> dict[str, Any]:
        own = self.kernels[repeat.first : repeat.last + 1]
        return {
            "kernels": [kernel.name for kernel in own],
            "steps": repeat.steps,
            "order": "from the last step to 0" if repeat.backwards else "from step 0 to the last",
            "rule": "the kernels run in turn, once for each step, which a scalar of value "
            f"'{STEP}' takes; a barrier stands between two steps",
        }

    def _describe_buffer(self, buffer: BufferBinding) -> dict[str, Any]:
        access = {(True, False): "read", (False, True): "write", (True, True): "read_write"}
        return {
            "name": buffer.name,
            "tensor": buffer.tensor,
            "data_type": buffer.dtype.name,
            "access": access[buffer.read, buffer.written],
            **self.language.describe_buffer(buffer),
        }

    def _describe_scalar(self, scalar: ScalarBinding) -> dict[str, Any]:
        return {
            "name": scalar.name,
            "value": scalar.value,
            "type": f"UINT{scalar.bits}",
            **self.language.describe_scalar(scalar),
        }

    def list_files(self) -> dict[str, bytes]:
        """Sources of the kernels as `write` writes them, by file name."""
        every = (each for kernel in self.kernels for each in (kernel, *kernel.alternatives))
        return {self.file_name(kernel): kernel.source.encode() for kernel in every}

    def file_name(self, kernel: KernelSource) -> str:
        """File name of a kernel's source for `write`."""
        expect("kernel", kernel, KernelSource, "a kernel of the program")
        return name_file(kernel.name, self.language.suffix)

    def write(self, directory: str | Path) -> list[Path]:
        """Writes the kernels' sources and `manifest.json`, and returns their paths. All files
        appear, or none. Raises `DmlcError` if the folder cannot be created or written to."""
        return write_programs([self], expect_path("directory", directory))


def list_sharing(tensors: Sequence[TensorSpec]) -> dict[str, tuple[str, ...]]:
    """Scratch tensors that share memory with each, itself included."""
    placed = sorted(
        (t.offset, t.offset + (t.bytes or 0), t.name) for t in tensors if t.offset is not None
    )
    sharing: dict[str, list[str]] = {name: [] for _, _, name in placed}
    live: list[tuple[int, str]] = []
    for start, end, name in placed:
        live = [(stop, other) for stop, other in live if stop > start]
        for _, other in live:
            sharing[other].append(name)
            sharing[name].append(other)
        sharing[name].append(name)
        live.append((end, name))
    return {name: tuple(others) for name, others in sharing.items()}


def write_programs(
    programs: Sequence[Program],
    directory: str | Path,
    more: Mapping[str, bytes] = MappingProxyType({}),
) -> list[Path]:
    """Writes programs for several targets into one folder: all sources, `more` files by name, and
    one `manifest.json`. With one program the manifest is that program's own; with more, `programs`
    in it lists them. Raises `DmlcError` if the folder cannot be created or written to."""
    sources = {name: text for p in programs for name, text in p.list_files().items()}
    whole = describe_programs(programs, more)
    text = json.dumps(whole, indent=2) + "\n"
    return write_files(directory, {**sources, MANIFEST: text.encode(), **more})


def describe_programs(
    programs: Sequence[Program], more: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, Any]:
    """Manifest of programs in one folder with `more` files: the program's own, or for several
    targets a list of theirs. `files` lists all files in the folder."""
    found = [p.manifest() for p in programs]
    files = {name: said for each in found for name, said in each["files"].items()}
    files |= _describe_files(more)
    if len(found) == 1:
        return {**found[0], "files": files}
    return {
        "version": MANIFEST_VERSION,
        "generator": f"dmlc {VERSION}",
        "programs": found,
        "files": files,
    }


def describe_file(content: bytes) -> dict[str, Any]:
    """Size and digest of a file for a manifest, so that a host detects a different one."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _describe_files(contents: Mapping[str, bytes]) -> dict[str, Any]:
    return {name: describe_file(content) for name, content in contents.items()}


def constant_buffer_bytes(scalars: tuple[ScalarBinding, ...]) -> int:
    """Size of a constant buffer with these scalars in bytes: whole rows of 16."""
    used = max((s.offset + s.bits // 8 for s in scalars), default=0)
    return -(-used // 16) * 16


def _describe_tensor(tensor: TensorSpec) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "role": tensor.role.value,
        "data_type": tensor.dtype.name,
        "element_bytes": tensor.dtype.bytes,
        "sizes": list(tensor.extents),
        "strides": None if tensor.strides is None else list(tensor.strides),
        "bytes": tensor.bytes,
        "in_place": list(tensor.in_place),
        **_describe_open(tensor),
        **_describe_scratch(tensor),
        **({"values": _list_values(tensor)} if tensor.role is Role.CONSTANT else {}),
    }


def _describe_open(tensor: TensorSpec) -> dict[str, Any]:
    """Elements and bytes of a tensor of run-time size as formulas."""
    if tensor.bytes is not None:
        return {}
    elements = multiply(tensor.extents)
    size = elements * tensor.dtype.bytes
    whole = str(size) if tensor.dtype.bytes % 4 == 0 else f"({size} + 3) / 4 * 4"
    return {"formulas": {"elements": str(elements), "bytes": whole}}


def _describe_scratch(tensor: TensorSpec) -> dict[str, Any]:
    if tensor.role is not Role.SCRATCH:
        return {}
    lifetime = None if tensor.lifetime is None else list(tensor.lifetime)
    return {"offset": tensor.offset, "lifetime": lifetime}


def _list_values(tensor: TensorSpec) -> list[bool | int | float | str]:
    """Elements of a constant for JSON; those that JSON lacks are strings, such as `"inf"`."""
    return [str(v) if isinstance(v, float) and not math.isfinite(v) else v for v in tensor.values]


def _describe_traffic(traffic: tuple[int, int] | None) -> dict[str, int | None]:
    read, written = traffic or (None, None)
    return {"bytes_read": read, "bytes_written": written}


def _describe_dispatch(dispatch: Dispatch) -> dict[str, Any]:
    count = dispatch.count
    return {
        "rule": dispatch.rule,
        "count": count,
        "per_group": dispatch.per_group,
        "row": dispatch.row,
        "groups": list(dispatch.groups({})) if isinstance(count, int) else None,
        **({} if isinstance(count, int) else {"formulas": _list_formulas(dispatch)}),
    }


def _list_formulas(dispatch: Dispatch) -> list[str]:
    """Groups along x, y and z in C, over unsigned 64-bit integers."""
    total = str(dispatch.count)
    if dispatch.per_group > 1:
        total = f"({dispatch.count} + {dispatch.per_group - 1}) / {dispatch.per_group}"
    row = dispatch.row
    if row is None:
        return [total, "1", "1"]
    along = f"({total}) <= {row} ? {total} : {row}"
    down = f"({total}) <= {row} ? 1 : ({total} + {row - 1}) / {row}"
    return [along, down, "1"]
