"""Schedules of a program as a file: a section for each kernel.

    target opencl gpu    // the following is for this target alone; the profile is optional
    kernel c             // the title of a kernel: the last tensor that it stores
    rfactor k 512
    split i0 64 as rows

A kernel without a section, or with an empty one, has the schedule that its rule chooses; so has one
whose section contains `rfactor` alone. A reduction with a section is split only by `rfactor`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.nodes import Call, Nest
from dmlc.loops.rfactor import RFACTOR
from dmlc.loops.script import ScheduleError, list_lines, parse_call
from dmlc.source import Diagnostic, Note, Source, Span, unknown_name

TARGET, KERNEL = "target", "kernel"
"""First words of lines that are not calls."""


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """Schedule of a kernel in a file."""

    span: Span = dataclasses.field(compare=False)
    """Source of the kernel's title."""
    cut: Call | None = None
    """Split of its reduction into chunks."""
    calls: tuple[Call, ...] = ()
    """Calls that make its nest from the naive one."""

    @property
    def lines(self) -> tuple[Call, ...]:
        return (*([] if self.cut is None else [self.cut]), *self.calls)


@dataclasses.dataclass(frozen=True)
class Sections:
    """Sections for the kernels of one program, by title."""

    named: Mapping[str, Section] = dataclasses.field(default_factory=dict[str, Section])
    taken: frozenset[str] = frozenset()
    """Titles of the kernels of earlier parts of the program."""
    seen: dict[str, Nest] | None = None
    """Collects the nest of each kernel, if not None."""

    def name(self, own: str) -> str:
        """Title in the program of a kernel whose title in its part is `own`."""
        number = 2
        name = own
        while name in self.taken:
            name, number = f"{own}.{number}", number + 1
        return name

    def find(self, own: str) -> Section | None:
        return self.named.get(self.name(own))

    def see(self, own: str, nest: Nest) -> None:
        """Records the nest of a kernel."""
        if self.seen is not None:
            self.seen[self.name(own)] = nest

    def rename(self, kernel: k.Kernel) -> k.Kernel:
        """Kernel of a part with its title in the program."""
        cut = (self.name(kernel.cut[0]), *kernel.cut[1:]) if kernel.cut else ()
        return dataclasses.replace(kernel, title=self.name(kernel.title), cut=cut)

    def follow(self, kernels: Iterable[k.Kernel]) -> Sections:
        """Sections for the part of the program after these kernels."""
        titles = {title for kernel in kernels for title in (kernel.title, *kernel.cut[:1])}
        return dataclasses.replace(self, taken=self.taken | titles)

    def check(self, kernels: Sequence[k.Kernel]) -> None:
        """Raises `ScheduleError` for sections that no kernel of the program used."""
        made = list_sections(kernels)
        found: list[Diagnostic] = []
        for name, section in self.named.items():
            if name not in made:
                found.append(unknown_name("kernel", name, made, section.span))
                continue
            cuts = [] if section.cut is None else [section.cut]
            calls, lines = section.calls, made[name]
            if cuts and lines[:1] != tuple(map(str, cuts)):
                found.append(_refuse(cuts[0], name, "reduces nothing that can be made in pieces"))
            elif calls and lines[len(cuts) :] != tuple(map(str, calls)):
                found.append(_refuse(calls[0], name, "has loops that no script makes"))
        if found:
            raise ScheduleError(found)


def _refuse(call: Call, name: str, why: str) -> Diagnostic:
    return Diagnostic(f"{call}: kernel '{name}' {why}", call.span)


NONE = Sections()
"""No sections: rules choose every schedule."""


def list_sections(kernels: Sequence[k.Kernel]) -> dict[str, tuple[str, ...]]:
    """Calls that made kernels, by title."""
    sections: dict[str, tuple[str, ...]] = {}
    for kernel in kernels:
        if kernel.cut:
            name, cut = kernel.cut
            sections[name] = (cut,)
        sections.setdefault(kernel.title, ())
    for kernel in kernels:
        sections[kernel.title] += kernel.script
    return sections


def print_sections(kernels: Sequence[k.Kernel], target: str, profile: Profile) -> str:
    """File of the schedules of a program, from which `read_sections` and the compiler make equal
    kernels. Loops of kernels without a script are comments."""
    lines = [f"{TARGET} {target} {profile.name}"]
    rows = {each.title: [f"  // {each.row}"] for each in kernels if each.row}
    trees = {each.title: each.schedule for each in kernels if not each.script}
    for name, calls in list_sections(kernels).items():
        lines += ["", f"{KERNEL} {name}", *rows.get(name, []), *(f"  {call}" for call in calls)]
        if name in trees:
            lines += [
                "  // no script makes its loops:",
                *(f"  //   {each}" for each in trees[name]),
            ]
    return "\n".join(lines)


def list_targets(source: Source, every: Sequence[str]) -> tuple[str, ...]:
    """Targets of `every` that a file is for: all of them, if it names none."""
    lines = [line.text.split() for line in list_lines(source)]
    return tuple(words[1] for words in lines if words[0] == TARGET and words[1:]) or tuple(every)


def read_sections(source: Source, limits: Limits, profile: Profile) -> Sections:
    """Sections of a file for a target and a profile. Raises `ScheduleError`, with all locations, if
    lines are not calls, or no section is for this target."""
    named: dict[str, Section] = {}
    wrong: list[Diagnostic] = []
    heads: list[str] = []
    meant, current = True, ""
    for line in list_lines(source):
        word, *rest = line.text.split()
        try:
            if word == TARGET:
                meant, current = _is_meant(rest, line, limits, profile), ""
                heads.append(" ".join(rest))
            elif word == KERNEL:
                current = _begin(named if meant else {}, line)
            else:
                _add(named if meant else {}, current, line)
        except ScheduleError as error:
            wrong += error.diagnostics
    if wrong:
        raise ScheduleError(wrong)
    if heads and not named:
        raise ScheduleError(
            f"'{source.name}' has schedules for {', '.join(heads)}, and none for "
            f"{limits.target} {profile.name}"
        )
    return Sections(named)


def _is_meant(words: Sequence[str], line: Span, limits: Limits, profile: Profile) -> bool:
    if len(words) not in (1, 2):
        raise ScheduleError(f"expected '{TARGET} NAME' or '{TARGET} NAME PROFILE'", line)
    return words[0] == limits.target and words[1:] in ([], [profile.name])


def _begin(named: dict[str, Section], line: Span) -> str:
    name = line.text[len(KERNEL) :].strip()
    if not name or len(name.split()) > 1:
        raise ScheduleError(f"expected '{KERNEL} NAME'", line)
    span = Span(line.source, line.end - len(name), line.end)
    if name in named:
        raise ScheduleError(
            Diagnostic(
                f"kernel '{name}' has two sections", span, (Note("the first", named[name].span),)
            )
        )
    named[name] = Section(span)
    return name


def _add(named: dict[str, Section], current: str, line: Span) -> None:
    call = parse_call(line)
    if not current:
        raise ScheduleError(
            f"'{line.text}' is in no section: they begin with '{KERNEL} NAME'", line
        )
    section = named.get(current)
    if section is None:
        return
    # Without a number of points it is an ordinary call, which splits a reduction in its kernel.
    if call.verb != RFACTOR or len(call.arguments) == 1:
        named[current] = dataclasses.replace(section, calls=(*section.calls, call))
    elif section.lines:
        raise ScheduleError(f"{call}: a section begins with it, and has it once", line)
    else:
        named[current] = dataclasses.replace(section, cut=call)
