"""Known-answer tests of a device: programs with known results, run and compared.

Drivers have compilers with bugs of their own, and a wrong result looks like any other. This module
runs the tests and caches the verdict; its callers choose the programs. A verdict is for one device,
driver, processor and choice of instructions. Only a positive one is kept on disk.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from dmlc.program import Program
from dmlc.runtime.arrays import Array
from dmlc.runtime.kept import Kept
from dmlc.source import DmlcError, UnavailableError, UnsupportedError

_MOST_BYTES = 1 << 16
Run: TypeAlias = Callable[[Mapping[str, Array]], dict[str, Array]]
"""Program loaded on a device."""
SHOWN = 3
"""Number of wrong answers described; the others are counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Expected output of a question."""

    shown: str
    """Description of the computation, for messages."""
    values: Array
    ulps: float
    """Permitted error in units in the last place."""
    operands: tuple[str, ...]
    """Inputs that it is computed from."""
    place: tuple[str, int] | None = None
    """Output that it is a part of, and the index of its first element there; None for the output of
    its own name."""
    left_open: Array | None = None
    """Mask of the elements with undefined results; None for none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """Program with its inputs, and its answers by output."""

    program: Program
    inputs: Mapping[str, Array]
    answers: Mapping[str, Answer]


def ask(questions: Iterable[Question], load: Callable[[Program], Run]) -> tuple[str, ...]:
    """Wrong answers of a device, one sentence each. An operation that the device does not support
    is not wrong. Raises `UnavailableError` for a missing tool."""
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
    """Indices of the wrong elements. All NaN are equal, and both zeros."""
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
    """Cache of verdicts: of all devices in this process, and of correct ones on disk. A wrong
    device is tested again by each process, so that nothing has to be cleared after a driver, or
    this package, is corrected in place."""

    def __init__(self, folder: Path | None) -> None:
        self._right = Kept(folder, _MOST_BYTES)
        self._known: dict[bytes, tuple[str, ...]] = {}

    def find(
        self, identity: Mapping[str, str], find_out: Callable[[], tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Wrong answers of a device: empty if known to be correct, or else the result of
        `find_out`. `identity` names everything that the verdict depends on."""
        key = json.dumps(identity, indent=2, sort_keys=True).encode()
        if key not in self._known:
            wrong: tuple[str, ...] = ()
            if self._right.read(key) is None:
                wrong = find_out()
                if not wrong:
                    self._right.keep(key, key)
            self._known[key] = wrong
        return self._known[key]
