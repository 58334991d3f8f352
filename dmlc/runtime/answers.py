"""Whether a device computes rightly: programs whose answers are known, run and compared.

Drivers have compilers with bugs of their own, and what such a device gives looks like any result.
This module asks and keeps what came of it; which programs are asked, its callers decide. A verdict
holds for one device, driver, processor and choice of instructions: that a device is right is kept
on disk, and found out once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from dmlc.files import read_bounded, write_files
from dmlc.program import Program
from dmlc.runtime.arrays import Array
from dmlc.source import DmlcError, UnavailableError, UnsupportedError

_MOST_BYTES = 1 << 16
SHOWN = 3
"""So many wrong answers are told; the others are counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What an output of a question must be."""

    shown: str
    """What is computed, in words for who reads that it is wrong."""
    values: Array
    ulps: float
    """How far results may be off, in units of the last place."""
    operands: tuple[str, ...]
    """The inputs that it is computed from."""
    place: tuple[str, int] | None = None
    """The output that it is a part of, and the number of its first element there; None where it is
    the output of its own name."""
    left_open: Array | None = None
    """Which elements the device may give anything for; None for none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A program, what it is given, and its answers by output."""

    program: Program
    inputs: Mapping[str, Array]
    answers: Mapping[str, Answer]


class Loaded(Protocol):
    """A program that is ready to run."""

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...


def ask(questions: Iterable[Question], load: Callable[[Program], Loaded]) -> tuple[str, ...]:
    """What a device gets wrong, a sentence each; nothing where it is right. What a device cannot
    do at all it does not get wrong. Raises `UnavailableError` where a tool is missing."""
    wrong: list[str] = []
    for question in questions:
        try:
            found = load(question.program)(question.inputs)
        except UnsupportedError:
            continue
        except UnavailableError:
            raise
        except DmlcError as error:
            wrong.append(f"{question.program.name} does not run: {error.diagnostics[0].message}")
            continue
        for name, answer in question.answers.items():
            output, start = answer.place or (name, 0)
            values = found[output][start : start + answer.values.size]
            places = find_wrong(values, answer)
            if places.size:
                said = _describe(answer, question.inputs, values, int(places[0]))
                wrong.append(f"{said}; {places.size} of {values.size} are wrong")
    return tuple(wrong)


def find_wrong(found: Array, answer: Answer) -> Array:
    """The places of the elements that are not what they must be. NaN is NaN, and a zero a zero,
    whatever its sign."""
    wanted = answer.values
    with np.errstate(all="ignore"):
        right = (found == wanted) | ((found != found) & (wanted != wanted))
        if answer.ulps:
            unit = np.spacing(np.abs(wanted))
            right |= np.abs(found - wanted) <= answer.ulps * unit
    if answer.left_open is not None:
        right |= answer.left_open
    return np.flatnonzero(~right)


def _describe(answer: Answer, inputs: Mapping[str, Array], found: Array, place: int) -> str:
    given = ", ".join(f"{n} = {inputs[n][place]!s}" for n in answer.operands)
    return f"{answer.shown} is {found[place]!s}, not {answer.values[place]!s} ({given})"


class Verdicts:
    """What was found of devices: in this process, and on disk of those that are right.

    A wrong device is asked again by each process that wants it, so that nothing has to be cleared
    where a driver, or this package, was mended in place.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, tuple[str, ...]] = {}

    def find(
        self, identity: Mapping[str, str], find_out: Callable[[], tuple[str, ...]]
    ) -> tuple[str, ...]:
        """What a device gets wrong: nothing where that is known, or else what `find_out` says.
        `identity` names all that a verdict depends on."""
        text = json.dumps(identity, indent=2, sort_keys=True)
        if text not in self._known:
            name = hashlib.sha256(text.encode()).hexdigest()[:32] + ".json"
            wrong: tuple[str, ...] = ()
            if not self._is_right(name, text):
                wrong = find_out()
                if not wrong:
                    self._keep(name, text)
            self._known[text] = wrong
        return self._known[text]

    def _is_right(self, name: str, text: str) -> bool:
        if self._folder is None:
            return False
        try:
            return read_bounded(self._folder / name, _MOST_BYTES) == text.encode()
        except DmlcError:
            return False

    def _keep(self, name: str, text: str) -> None:
        if self._folder is None:
            return
        try:
            write_files(self._folder, {name: text.encode()})
        except DmlcError:
            # A home that cannot be written to: the next process finds out again.
            return
