"""DirectML's answers: reading them, and holding what a device computes to them."""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import dmlc
from dmlc.binding import TensorDesc
from dmlc.scalars import Array
from dmlc.testing.case import Call, Case, lay_out, run_case
from dmlc.testing.differences import find_all_concerned

FOLDER = Path(__file__).parent
_REFUSED = "refused by dmlc"


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """A call, and what DirectML gave for it."""

    number: int
    case: Case
    given: Mapping[str, Array]
    within: Mapping[str, float]
    """The largest difference that dmlc's own bounds allow of each output."""

    @property
    def operator(self) -> str:
        return self.case.call.operator.name


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What came of an answer on a device: how many elements differ by which rule, the title of a
    section `differs`, and how many by none."""

    by_rule: Counter[str]
    unexplained: Counter[str]
    """By output, or by what is said of a call that is refused."""
    unsupported: str = ""
    """Why the device cannot run it: it has no elements of 8 bits, say."""

    @property
    def equal(self) -> bool:
        return not (self.by_rule or self.unexplained or self.unsupported)


@functools.cache
def _read_stored() -> Mapping[str, list[tuple[int, dict[str, Any]]]]:
    """The answers as they are stored, by operator, with their numbers."""
    with gzip.open(FOLDER / "answers.json.gz", "rt", encoding="utf-8") as file:
        stored: list[dict[str, Any]] = json.load(file)
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for number, each in enumerate(stored):
        found.setdefault(each["operator"], []).append((number, each))
    return found


def list_names() -> list[str]:
    """The operators that there are answers of."""
    return list(_read_stored())


def count_answers() -> dict[str, int]:
    """The number of answers of each operator that has some."""
    return {name: len(answers) for name, answers in _read_stored().items()}


@functools.cache
def read_answers(name: str) -> tuple[Answer, ...]:
    """Those of an operator."""
    return tuple(_make_answer(number, each) for number, each in _read_stored()[name])


def _make_answer(number: int, stored: dict[str, Any]) -> Answer:
    tensors = {
        name: TensorDesc(dtype, tuple(sizes), None if strides is None else tuple(strides))
        for name, (dtype, sizes, strides) in stored["tensors"].items()
    }
    call = Call(dmlc.operator(stored["operator"]), tensors, stored["attributes"])
    inputs = {n: lay_out(_read(t, tensors[n]), tensors[n]) for n, t in stored["inputs"].items()}
    given = {name: _read(text, tensors[name]) for name, text in stored["outputs"].items()}
    return Answer(number, Case(call, inputs, f"answer {number}"), given, stored["within"])


def _read(text: str, desc: TensorDesc) -> Array:
    """Values in logical order, of little-endian bytes in base64."""
    dtype = desc.data_type.dtype.newbyteorder("<")
    values = np.frombuffer(base64.b64decode(text), dtype).astype(desc.data_type.dtype)
    return lay_out(values, TensorDesc(desc.data_type, desc.sizes))


def judge(answer: Answer, device: str) -> Found:
    """Runs a call on a device, and tells each element that differs from DirectML's by the first
    section `differs` of the operator that names it."""
    try:
        results = run_case(answer.case, device)
    except dmlc.UnsupportedError as error:
        return Found(Counter(), Counter(), str(error))
    except dmlc.DmlcError as error:
        return Found(Counter(), Counter({f"{_REFUSED}: {error}": 1}))
    return explain(answer, results)


def explain(answer: Answer, results: Mapping[str, Array]) -> Found:
    """The same, of results that are at hand."""
    wrong = {
        name: ~is_near(results[name], given, answer.within[name])
        for name, given in answer.given.items()
    }
    by_rule: Counter[str] = Counter()
    if any(elements.any() for elements in wrong.values()):
        for title, named in find_all_concerned(answer.case.call, answer.case.inputs).items():
            for name in named.keys() & wrong.keys():
                by_rule[title] += int(np.count_nonzero(wrong[name] & named[name]))
                wrong[name] &= ~named[name]
    left = Counter({n: int(np.count_nonzero(elements)) for n, elements in wrong.items()})
    return Found(+by_rule, +left)


def is_near(found: Array, given: Array, within: float) -> Array:
    """Where a result is DirectML's: each of the two may be off by the bound, and FLOAT32 by its
    rounding; whole numbers by the bound alone."""
    have, want = found.astype(np.float64), given.astype(np.float64)
    relative = 0.0 if given.dtype.kind in "iu" else 1e-6
    with np.errstate(all="ignore"):
        off = np.abs(want - have)
        near = (off > 0) & (off <= 2 * within + relative * np.abs(want))
    return near | (found == given) | (np.isnan(want) & np.isnan(have))


@dataclasses.dataclass(slots=True)
class Tally:
    """What came of an operator's answers."""

    calls: int = 0
    equal: int = 0
    unsupported: int = 0
    by_rule: Counter[str] = dataclasses.field(default_factory=Counter[str])
    """The calls that differ by each rule."""
    elements: Counter[str] = dataclasses.field(default_factory=Counter[str])
    """Their elements that do."""
    unexplained: list[str] = dataclasses.field(default_factory=list[str])


def tally(answers: Iterable[Answer], device: str) -> Tally:
    made = Tally()
    for answer in answers:
        found = judge(answer, device)
        made.calls += 1
        made.equal += found.equal
        made.unsupported += bool(found.unsupported)
        made.by_rule.update(found.by_rule.keys())
        made.elements.update(found.by_rule)
        if found.unexplained:
            said = ", ".join(f"{n} {what}" for what, n in found.unexplained.items())
            made.unexplained.append(f"{answer.number}: {said}")
    return made
