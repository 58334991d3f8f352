"""What the corpus compiles to, as hashes and modelled times, and what differs from the recorded
state.

The code of a program is all that a device and a host see of it: kernels without their comments,
launches, bindings, memory. Its text has the comments too. Of a program that a target cannot
express, the state has the reason.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from dmlc.codegen.targets import TARGETS
from dmlc.inspection.launches import estimate_kernels
from dmlc.inspection.model import DEVICES
from dmlc.ir import Function
from dmlc.ir.specialize import specialize
from dmlc.kernel.arithmetic import bind_sizes
from dmlc.kernel.nodes import Kernel
from dmlc.kernel.steps import count_steps
from dmlc.pipeline import compile_kernels, make_kernels
from dmlc.program import VERSION, KernelSource, Origin, Program
from dmlc.source import UnsupportedError
from dmlc.transform.loops import part_loops
from tests.corpus.subjects import SUBJECTS

RECORDED = Path(__file__).with_name("recorded")
KINDS: Mapping[str, tuple[str, str, str | None]] = {
    "-".join(filter(None, (target.name, model if number else None, profile))): (
        target.name, profile, model
    )
    for target in TARGETS
    for number, model in enumerate(target.shader_models or (None,))
    for profile in target.profiles
}  # fmt: skip
"""The kinds of devices that programs are compiled for: a target, a profile, and a shader model."""
_ELEMENTS = 20
"""Programs for sizes that are not known are modelled where their symbols' product is 2 to this."""
FAILED = "failed: "
"""What the reason begins with where the compiler is broken; it is not recorded."""
_CLOSE = 0.01
"""Modelled times that differ by no more than this part are the same."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A program in a state: a line of a recorded file."""

    code: str = ""
    """The hash of its code."""
    text: str = ""
    """The hash of its text."""
    kernels: int = 0
    figures: tuple[float, ...] = ()
    """For a GPU, modelled microseconds on each of the model's devices; for a CPU, which the model
    does not know, the steps of all work items, unless elements of tensors decide on these."""
    refusal: str = ""
    """Why there is no program."""

    def write(self, name: str) -> str:
        """The line, whose fields tabs separate."""
        if self.refusal:
            return f"{name}\trefused\t{self.refusal}"
        return "\t".join((name, self.code, self.text, str(self.kernels), *map(_show, self.figures)))

    @staticmethod
    def read(line: str) -> tuple[str, Entry]:
        """The name and the entry of a line."""
        name, first, second, *rest = line.split("\t")
        if first == "refused":
            return name, Entry(refusal=second)
        return name, Entry(first, second, int(rest[0]), tuple(map(float, rest[1:])))

    def is_close(self, other: Entry) -> bool:
        """Whether figures are the same but for what a sum's order changes."""
        return len(self.figures) == len(other.figures) and all(
            abs(mine - its) <= _CLOSE * max(mine, its)
            for mine, its in zip(self.figures, other.figures, strict=True)
        )


def _show(figure: float) -> str:
    """Four digits of a figure."""
    return f"{float(f'{figure:.4g}'):.0f}" if figure >= 1e4 else f"{figure:.4g}"


State = Mapping[str, Entry]
"""The entries of a kind of devices by their names."""


# Compiling ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Compiled:
    """A function for a kind of devices."""

    name: str
    kind: str
    entry: Entry
    text: str
    """Nothing where it is refused."""


def compile_subject(subject: str, kinds: Iterable[str] = tuple(KINDS)) -> list[Compiled]:
    """The functions of a subject, compiled for each of some kinds of devices."""
    return [
        _compile(name, kind, function) for name, function in SUBJECTS[subject]() for kind in kinds
    ]


def _compile(name: str, kind: str, function: Function) -> Compiled:
    target, profile, model = KINDS[kind]
    try:
        program, lowered, kernels = compile_kernels(function, target, profile, shader_model=model)
    except UnsupportedError as error:
        return Compiled(name, kind, Entry(refusal=error.diagnostics[0].message), "")
    except Exception as error:
        # Whatever is broken, the rest of the corpus says how much is.
        message = " ".join(str(error).split())
        return Compiled(name, kind, Entry(refusal=f"{FAILED}{type(error).__name__}: {message}"), "")
    parts = part_loops(function)
    made = [(lowered, kernels)]
    if len(parts) > 1 or program.repeats:
        # Of a loop, one step is a function of its own.
        made = [make_kernels(p.function, target, profile, shader_model=model) for p in parts]
    each = [find_figures(*part, profile) for part in made]
    figures = tuple(
        sum(part.steps * figure for part, figure in zip(parts, of_parts, strict=True))
        for of_parts in zip(*each, strict=False)  # None where one of them has none.
    )
    host, sources = list(describe(program)), [kernel.source for kernel in program.kernels]
    bare = (re.sub(r"^[ \t]*//.*\n|[ \t]*//.*|^\n", "", source, flags=re.M) for source in sources)
    text = "\n".join([*(f"// {line}" for line in host), *sources])
    text = text.replace(f"dmlc {VERSION}", "dmlc")
    entry = Entry(make_hash("\n".join([*host, *bare])), make_hash(text), len(kernels), figures)
    return Compiled(name, kind, entry, text)


def find_figures(function: Function, kernels: Sequence[Kernel], profile: str) -> tuple[float, ...]:
    """What the kernels of a function without loops take, all together: see `Entry.figures`."""
    symbols = function.symbols()
    if symbols:
        sizes = dict.fromkeys(symbols, 1 << (_ELEMENTS // len(symbols)))
        function = specialize(function, sizes)
        # Versions for other sizes have no groups.
        bound = (bind_sizes(kernel, sizes) for kernel in kernels)
        kernels = [kernel for kernel in bound if kernel.launch.count]
    if profile == "gpu":
        taken = estimate_kernels(function, kernels)
        return tuple(1e6 * sum(each[device.name] for each in taken) for device in DEVICES)
    counted = [count_steps(kernel, function.tables) for kernel in kernels]
    steps = [each.total for each in counted if each is not None and each.total is not None]
    return (sum(steps),) if len(steps) == len(kernels) else ()


def describe(program: Program) -> Iterator[str]:
    """What a host is told of a program, line by line."""
    for tensor in program.tensors:
        values = f" {make_hash(repr(tensor.values))}" if tensor.values else ""
        yield f"{dataclasses.replace(tensor, values=())}{values}"
    facts = ("max_count", "elementwise", "checks", "repeats")
    yield ", ".join(f"{fact}={getattr(program, fact)}" for fact in facts)
    yield from (repr(_without_origin(kernel)) for kernel in program.kernels)


def _without_origin(kernel: KernelSource) -> KernelSource:
    return dataclasses.replace(kernel, origin=Origin())


def make_hash(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# The recorded state ---------------------------------------------------------------------------


def read_state(kind: str, folder: Path = RECORDED) -> dict[str, Entry]:
    """The recorded state of a kind of devices; nothing where there is none."""
    path = folder / f"{kind}.tsv"
    if not path.is_file():
        return {}
    return dict(map(Entry.read, path.read_text(encoding="utf-8").splitlines()[1:]))


def write_state(kind: str, state: State, folder: Path = RECORDED) -> None:
    """Records the state of a kind of devices, sorted by name. Figures that are close to those
    recorded stay as they are."""
    before = read_state(kind, folder)
    units = ["steps"] if KINDS[kind][1] == "cpu" else [f"{d.name}, us" for d in DEVICES]
    lines = ["\t".join(["# name", "code", "text", "kernels", *units])]
    for name, entry in sorted(state.items()):
        if name in before and entry.is_close(before[name]):
            entry = dataclasses.replace(entry, figures=before[name].figures)
        lines.append(entry.write(name))
    folder.mkdir(exist_ok=True)
    (folder / f"{kind}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A program that is not as recorded."""

    name: str
    before: Entry | None
    """None where it is not recorded."""
    after: Entry | None
    """None where there is none by that name any more."""

    @property
    def what(self) -> str:
        """What is not as recorded."""
        match self.before, self.after:
            case None, _:
                return "new"
            case _, None:
                return "gone"
            case Entry(refusal=""), Entry(refusal=why) if why:
                return why if why.startswith(FAILED) else f"refused: {why}"
            case Entry(refusal=why), Entry(refusal=""):
                return "compiled" if why else self._compare(self.before, self.after)
            case _:
                return f"refused otherwise: {self.after.refusal}"

    def _compare(self, before: Entry, after: Entry) -> str:
        if before.code != after.code:
            return "code"
        return "comments" if before.text != after.text else "times"

    def show(self, kind: str) -> str:
        """The difference in a line: what it is, kernels and figures, old and new."""
        titles = ["steps"] if KINDS[kind][1] == "cpu" else [f"us on {d.name}" for d in DEVICES]
        parts: list[str] = []
        match self.before, self.after:
            case Entry(refusal="") as before, Entry(refusal="") as after:
                if before.kernels != after.kernels:
                    parts.append(f"{before.kernels} -> {after.kernels} kernels")
                parts += map(_show_change, before.figures, after.figures, titles)
            case _:
                for entry in (self.before, self.after):
                    figures = () if entry is None else entry.figures
                    parts += (f"{_show(f)} {t}" for f, t in zip(figures, titles, strict=False))
        return f"{self.name}: {', '.join([self.what, *parts])}"


def _show_change(before: float, after: float, title: str) -> str:
    if abs(before - after) <= _CLOSE * max(before, after):
        return f"{_show(after)} {title}"
    change = f" ({after / before - 1:+.0%})" if before else ""
    return f"{_show(before)} -> {_show(after)} {title}{change}"


def find_differences(before: State, after: State) -> list[Difference]:
    """The entries that are not as recorded, sorted by name."""
    return [
        Difference(name, before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if name not in before or name not in after or not _are_same(before[name], after[name])
    ]


def _are_same(before: Entry, after: Entry) -> bool:
    return before.is_close(after) and before == dataclasses.replace(after, figures=before.figures)
