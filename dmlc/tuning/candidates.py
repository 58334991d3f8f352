"""Candidates for a kernel: schedule tables of one row, with other numbers than the usual ones."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

from dmlc.inspection.classes import find_class
from dmlc.inspection.launches import estimate_kernels
from dmlc.ir import Function
from dmlc.kernel.nodes import Kernel
from dmlc.kernel.target import Subject
from dmlc.program import Program
from dmlc.schedules.table import NUMBERS, name_type
from dmlc.source import DmlcError, Source

MOST = 10
"""Largest number of candidates of a kernel that are measured."""
_POOL = 40
"""Largest number of candidates that are compiled, to choose those from."""
_VALUES = {
    "tile": (
        "128 128 8 8 ahead", "64 64 8 16", "64 64 4 16 ahead", "64 64 4 16", "128 64 8 8 ahead",
        "64 32 4 16", "32 64 4 16", "32 32 4 16", "32 32 4 32",
    ),
    "panel": (
        "192 256 128", "96 256 256", "192 128 256", "384 256 256", "192 512 256", "96 128 128",
        "192 256 512", "384 512 256",
    ),
    "group_size": ("64", "128", "256"),
    "vectors": ("1", "2", "4", "8"),
    "columns": ("8", "16", "32", "64"),
    "points": ("2", "4", "8", "16"),
    "fill": ("256", "512", "1024", "2048", "4096"),
    "piece": ("1024", "4096", "16384", "65536", "262144"),
}  # fmt: skip
_OF_PROFILE = {
    "gpu": {
        "per_item": ("1", "2", "4", "8"),
        "groups": ("16", "32", "64", "128", "256", "512"),
    },
    # Fewer groups than the usual 16 first: few cores are busy with them, and a sum that is not cut
    # into pieces needs no second kernel.
    "cpu": {
        "per_item": ("4096", "8192", "16384", "65536", "131072", "262144"),
        "groups": ("2", "4", "8", "32", "64"),
    },
}
"""Values to try of each number that depend on the profile."""


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """Table of one row, and its modelled time."""

    table: str
    numbers: str
    """Numbers of the row, on one line."""
    modelled: float | None
    """Seconds of all kernels on a typical device of the class; None for CPUs."""


Compile = Callable[[Source], tuple[Program, Function, Sequence[Kernel]]]
"""Compiler with a schedule table: the program, the fused function, and its kernels. Raises
`DmlcError` for a row whose numbers are not legal."""


def write_table(subject: Subject, device: str, numbers: Sequence[str]) -> str:
    """Schedule table with one row, for kernels like `subject` on a class of devices."""
    names = [each.partition(" ")[0] for each in numbers]
    changes = any(subject.kind in NUMBERS[name].reorders for name in names)
    bits = None if subject.size is None else max(0, subject.size.bit_length() - 1)
    words = ["row", subject.kind, name_type(subject.dtype), "any" if bits is None else f"2^{bits}"]
    head = " ".join([*words, *(["reorders"] if changes else [])])
    return "\n".join([f"device {device}", head, *(f"  {each}" for each in numbers)]) + "\n"


def list_numbers(subject: Subject, profile: str) -> Iterator[tuple[str, ...]]:
    """Rows to try for kernels like `subject`: those with one number, then those with two."""
    single = [
        [f"{n.name} {value}" for value in (_VALUES | _OF_PROFILE[profile])[n.name]]
        for n in NUMBERS.values()
        if subject.kind in n.kinds.get(profile, ())
    ]
    # The first values of all numbers come before the second values of any.
    for row in itertools.zip_longest(*single):
        yield from ((each,) for each in row if each is not None)
    for first, second in itertools.combinations(single, 2):
        yield from itertools.product(first, second)


def choose_candidates(
    subject: Subject, device: str, profile: str, compile: Compile, usual: Program
) -> list[Candidate]:
    """Candidates for kernels like `subject` whose code differs from that of the usual kernels and
    of each other: for a GPU ordered by modelled time, for a CPU, which has no model, as listed."""
    seen = {_read_sources(usual)}
    found: list[Candidate] = []
    typical = find_class(device)
    for numbers in itertools.islice(list_numbers(subject, profile), _POOL):
        table = write_table(subject, device, numbers)
        try:
            program, function, kernels = compile(Source("<candidate>", table))
        except DmlcError:
            # These numbers give no legal kernel.
            continue
        sources = _read_sources(program)
        if sources in seen:
            continue
        seen.add(sources)
        modelled = None
        if typical is not None:
            estimates = estimate_kernels(function, kernels, [typical])
            modelled = sum(each[typical.name] for each in estimates)
        found.append(Candidate(table, "; ".join(numbers), modelled))
        if typical is None and len(found) == MOST:
            break
    found.sort(key=lambda each: each.modelled or 0.0)
    return found[:MOST]


def _read_sources(program: Program) -> tuple[tuple[str, int, str | int], ...]:
    """Code of a program's kernels without comments, and their launches."""
    return tuple(
        (
            "\n".join(line for line in k.source.splitlines() if not line.startswith("//")),
            k.dispatch.per_group,
            k.dispatch.count,
        )
        for k in program.kernels
    )
