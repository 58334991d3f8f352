"""Known-answer test: a device that computes wrongly is refused, unless it was named explicitly.

The questions are a few small kernels, compiled as any other: functions, choices, casts between all
kinds of types and comparisons after them, in vectors and in the scalar remainder. A device that
fails them fails elsewhere. The reference gives the answers. `runtime.answers` runs and caches them;
a device that the caller names (`opencl:0`, PYOPENCL_CTX) is used all the same, with a warning.
`forms` has the complete set of questions, for diagnosis.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import platform
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dmlc import ir
from dmlc.devices import (
    compile_for,
    find_device,
    list_dialects,
    list_profiles,
    load_on,
    selector_of,
)
from dmlc.files import cache_folder
from dmlc.kernel.target import find_profile
from dmlc.known_answers import forms
from dmlc.known_answers.forms import list_questions, list_word_questions
from dmlc.oracle import find_expected
from dmlc.program import VERSION
from dmlc.runtime.answers import SHOWN, Answer, Question, Verdicts, ask
from dmlc.runtime.instructions import LAVAPIPE, POCL, read_flags
from dmlc.runtime.interface import AnyDevice, find_runtime
from dmlc.scalars import Array, DataType, held_type
from dmlc.source import UnavailableError, UnsupportedError

COUNT = 67
"""Number of elements: whole vectors of any width, and a scalar remainder."""

_T = DataType


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    """Output: its type and formula in the IR, and the permitted error."""

    dtype: str
    formula: str
    shown: str
    ulps: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Sheet:
    """Kernel: inputs by name, with their type and first values, and its outputs."""

    name: str
    inputs: tuple[tuple[str, DataType, tuple[float, ...]], ...]
    lines: tuple[_Line, ...]


_FLOATS = (0.5, -0.5, 88.5, -3.25, 0.0, 1.0, 4.0, -17.0, np.nan, np.inf, -np.inf, 2.5, -1.5, 3e9)
_POWERS = (2.0, 3.0, 0.25, -1.0, 0.5, -2.5, 7.0, 2.0, 1.0, 3.0, 2.0, 0.0, -3.0)
_WHOLES = (0, -1, 7, 255, -40000, 65537, 2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31), 3, 2)
_OTHERS = (5, -7, 1, 0, 2**30 + 1, -65537, 4, 9, -(2**31), 12345678, 3)
_MASKS = (65535, 255, 0x0F0F0F0F, 1, -1)
_LONG = (2**33 + 5, -(2**33) - 5, 7, -1, 2**53 + 1, 0, -(2**62) - 1, 2**31 + 7, 3)

_LESS = "lt(%A[i0], %B[i0])"

_SHEETS = (
    _Sheet(
        "single_answers",
        (("A", _T.FLOAT32, _FLOATS), ("B", _T.FLOAT32, _POWERS)),
        (
            _Line("f32", "log(%A[i0])", "log of FLOAT32", 16),
            _Line("f32", "exp(%A[i0])", "exp of FLOAT32", 16),
            _Line("f32", "erf(%A[i0])", "erf of FLOAT32", 16),
            _Line("f32", "pow(%A[i0], %B[i0])", "pow of FLOAT32", 16),
            _Line("f32", "max(sub(%A[i0], %A[i0]), %B[i0])", "max(A - A, B)"),
            _Line("f32", f"select({_LESS}, neg(abs(%B[i0])), %A[i0])", "A < B ? -|B| : A"),
            _Line("s32", "cast(%A[i0], s32)", "FLOAT32 to INT32"),
        ),
    ),
    _Sheet(
        "choice_answers",
        (("A", _T.FLOAT32, _FLOATS), ("B", _T.FLOAT32, _POWERS)),
        (
            # A driver that ignores NaN makes a maximum and a minimum of these, which drop it.
            _Line("f32", "select(le(%A[i0], %B[i0]), %B[i0], %A[i0])", "A <= B ? B : A"),
            _Line("f32", "select(ge(%A[i0], %B[i0]), %B[i0], %A[i0])", "A >= B ? B : A"),
        ),
    ),
    _Sheet(
        "whole_answers",
        (
            ("A", _T.INT32, _WHOLES), ("B", _T.INT32, _OTHERS),
            ("M", _T.INT32, _MASKS), ("L", _T.INT64, _LONG), ("X", _T.FLOAT32, _FLOATS),
        ),
        (
            _Line("s32", f"select({_LESS}, bit_or(bit_and(%A[i0], cast(-2147483648, s32)), "
                  "%M[i0]), %A[i0])", "A < B ? A & 0x80000000 | M : A"),
            _Line("s32", f"select({_LESS}, bit_xor(bit_and(%A[i0], cast(255, s32)), %B[i0]), "
                  "%B[i0])", "A < B ? A & 255 ^ B : B"),
            _Line("s32", "select(eq(%A[i0], %B[i0]), %B[i0], bit_or(bit_and(%A[i0], "
                  "cast(15, s32)), bit_and(%B[i0], cast(-16, s32))))",
                  "A == B ? B : A & 15 | B & -16"),
            _Line("s32", "select(lt(cast(%A[i0], s64), %L[i0]), %A[i0], %B[i0])",
                  "INT32 to INT64 and compared"),
            _Line("f32", "cast(%L[i0], f32)", "INT64 to FLOAT32"),
            _Line("s64", "cast(cast(%A[i0], f32), s64)", "INT32 to FLOAT32 to INT64"),
            _Line("s32", "cast(cast(%A[i0], f32), s32)", "INT32 to FLOAT32 to INT32"),
            _Line("s32", "mod(%A[i0], %B[i0])", "the remainder of INT32"),
            # Here, for LLVM gets its form wrong only where no other function is near.
            _Line("f32", "tanh(%X[i0])", "tanh of FLOAT32", 16),
        ),
    ),
    _Sheet(
        "double_answers",
        (
            ("A", _T.FLOAT64, (-39.0, 37.0, 17.0, 49.0, 0.0, 12.0, 56.0, 27.0)),
            ("B", _T.FLOAT64, (2.0, 16.0, 6.0, 8.0, 7.0, 12.0, 5.0, 12.0)),
        ),
        (
            _Line("f64", "mod(%A[i0], %B[i0])", "the remainder of FLOAT64"),
            _Line("f64", "pow(%A[i0], %B[i0])", "pow of FLOAT64", 16),
            _Line("f64", "cast(cast(%A[i0], s16), f64)", "FLOAT64 to INT16 to FLOAT64"),
            _Line("f64", "cast(cast(%A[i0], u8), f64)", "FLOAT64 to UINT8 to FLOAT64"),
        ),
    ),
)  # fmt: skip

_REVISION = hashlib.sha256(repr(_SHEETS).encode()).hexdigest()[:16]
_folder = cache_folder()
_verdicts = Verdicts(None if _folder is None else _folder / "devices")
_settled: dict[int, AnyDevice] = {}
"""Devices of this process that are decided, by identity: hashing a device would take longer than
the rest of a look-up."""
_said: dict[AnyDevice, None] = {}
"""Devices that the user was warned of."""


class _ForkLock:
    """Lock of this process: in a child, a lock held by its parent's threads is never released."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def after_fork(self) -> None:
        self.lock = threading.RLock()


_process = _ForkLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.after_fork)


def find_trusted(device: str) -> AnyDevice | None:
    """Device of a device text, None for the reference: one that computes correctly, or one that the
    text insists on, with a warning. Raises as `devices.find_device` does, and `UnavailableError`
    for a device that computes wrongly and was not named."""
    found = find_device(device)
    if found is None or _settled.get(id(found)) is found:
        return found
    with _process.lock:
        wrong = find_wrong_answers(found)
        if not wrong:
            _settled[id(found)] = found
        elif not _insists(device, found):
            raise UnavailableError(
                f"{selector_of(found)}, {found}, computes wrongly: {wrong[0]}",
                notes=[*wrong[1:SHOWN], *advise(found)],
            )
        elif found not in _said:
            _said[found] = None
            said = f"{selector_of(found)}, {found}, computes wrongly: {'; '.join(wrong[:SHOWN])}"
            warnings.warn(said, RuntimeWarning, stacklevel=3)
    return found


def _insists(text: str, found: AnyDevice) -> bool:
    """Whether a device was named, and not only its runtime."""
    named = bool(text.partition(":")[2].strip())
    return named or bool(os.environ.get(find_runtime(found.runtime).CHOICE))


def advise(device: AnyDevice) -> list[str]:
    """Advice about a device that computes wrongly."""
    notes = [f"its driver runs {device.note}"] if device.note else []
    return [
        *notes,
        "use another device or a newer driver; `dmlc devices --check` says which devices are right",
        f"to use it all the same, name it: {selector_of(device)}",
    ]


def find_wrong_answers(device: AnyDevice) -> tuple[str, ...]:
    """Wrong answers of a device, one sentence each. A correct result is found once per device,
    driver, processor and version of dmlc, and kept in the user's cache folder."""
    with _process.lock:
        return _verdicts.find(identify(device), lambda: _ask(device))


def find_all_wrong(device: AnyDevice) -> tuple[str, ...]:
    """Wrong answers to all questions: every function and every form of statement, in every width
    and type. The first run takes some seconds."""
    with _process.lock:
        known = {**identify(device), "questions": f"{_REVISION} {_find_revision()}"}
        return _verdicts.find(known, lambda: (*find_wrong_answers(device), *_ask_all(device)))


def explain_failure(device: str) -> str:
    """Sentence about wrong results on a device: whether its driver is known to be wrong, or the
    kernel must be; empty for the reference."""
    found = find_device(device)
    if found is None:
        return ""
    named = f"{selector_of(found)}, {found},"
    wrong = find_all_wrong(found)
    if not wrong:
        return (
            f"{named} gives every known answer: the kernel is at fault, or what is expected of it"
        )
    shown = "; ".join([*wrong[:SHOWN], *(["..."] if len(wrong) > SHOWN else [])])
    blame = f"{named} gets {len(wrong)} of the known answers wrong, and may be at fault: {shown}"
    return f"{blame} (its driver runs {found.note})" if found.note else blame


def _ask_all(device: AnyDevice) -> tuple[str, ...]:
    return ask(make_all_questions(device), lambda program: load_on(program, device))


def make_all_questions(device: AnyDevice) -> Iterator[Question]:
    """Further questions for a device in its language, besides `make_questions`."""
    profile = list_profiles(device)[0]
    dialects = [each.of_profile(find_profile(profile)) for each in list_dialects(device)]
    for question in list_questions(dialects[0], profile, device.floats):
        yield _leave_open(question, device)
    for dialect in dialects:
        yield from list_word_questions(dialect, profile)


@functools.cache
def _find_revision() -> str:
    return hashlib.sha256(Path(forms.__file__).read_bytes()).hexdigest()[:16]


def identify(device: AnyDevice) -> dict[str, str]:
    """Properties that determine how a device computes."""
    chosen = {v: os.environ.get(v, "") for v in (POCL.variable, LAVAPIPE.variable)}
    flags = hashlib.sha256(" ".join(sorted(read_flags())).encode()).hexdigest()[:16]
    return {
        "dmlc": VERSION,
        "questions": _REVISION,
        "device": f"{device.runtime} {device}",
        "driver": device.driver,
        "note": device.note,
        "floats": repr(device.floats),
        "processor": f"{platform.machine()} {flags}",
        **chosen,
    }


def _ask(device: AnyDevice) -> tuple[str, ...]:
    return ask(make_questions(device), lambda program: load_on(program, device))


def make_questions(device: AnyDevice) -> list[Question]:
    """Questions for a device, compiled for it, without those whose types its language has no
    arithmetic for."""
    found: list[Question] = []
    for whole in _SHEETS:
        sheet = _leave_out(whole, device)
        if not sheet.lines:
            continue
        function = _make_function(sheet)
        program = compile_for(function, device)
        inputs = {name: _fill(dtype, values) for name, dtype, values in sheet.inputs}
        expected = find_expected(function, inputs)
        answers = {
            f"r{number}": Answer(
                line.shown, expected[f"r{number}"], line.ulps, _list_operands(line.formula)
            )
            for number, line in enumerate(sheet.lines)
        }
        found.append(_leave_open(Question(program, inputs, answers), device))
    return found


def _leave_open(question: Question, device: AnyDevice) -> Question:
    """Question with undefined answers where a float is NaN or infinite, for the widths of which the
    device is known to lose these."""
    if not device.floats.lost:
        return question
    answers = {
        name: dataclasses.replace(answer, left_open=_find_open(answer, question.inputs, device))
        for name, answer in question.answers.items()
    }
    return dataclasses.replace(question, answers=answers)


def _find_open(answer: Answer, inputs: Mapping[str, Array], device: AnyDevice) -> Array | None:
    count = answer.values.size
    arrays = [answer.values, *(inputs[name][:count] for name in answer.operands)]
    found: Array | None = None
    for array in arrays:
        dtype = held_type(array.dtype)
        if dtype is not None and device.floats.loses_special(dtype):
            lost = ~np.isfinite(array)
            found = lost if found is None else found | lost
    return found


def _leave_out(sheet: _Sheet, device: AnyDevice) -> _Sheet:
    """Sheet without the lines that a device's language has no arithmetic for, and without their
    inputs."""
    lines = tuple(line for line in sheet.lines if _can_ask(_pick_lines(sheet, (line,)), device))
    return sheet if lines == sheet.lines else _pick_lines(sheet, lines)


def _pick_lines(sheet: _Sheet, lines: tuple[_Line, ...]) -> _Sheet:
    used = {name for line in lines for name in _list_operands(line.formula)}
    return _Sheet(sheet.name, tuple(i for i in sheet.inputs if i[0] in used), lines)


def _can_ask(sheet: _Sheet, device: AnyDevice) -> bool:
    try:
        compile_for(_make_function(sheet), device)
    except UnsupportedError:
        return False
    return True


def _make_function(sheet: _Sheet) -> ir.Function:
    inputs = ", ".join(f"%{name}: {dtype.short}[n]" for name, dtype, _ in sheet.inputs)
    outputs = ", ".join(f"%r{number}" for number in range(len(sheet.lines)))
    stages = [
        f"  %r{number}: {line.dtype}[i0 < n] = {line.formula}"
        for number, line in enumerate(sheet.lines)
    ]
    return ir.parse("\n".join([f"func @{sheet.name}({inputs}) -> ({outputs}) {{", *stages, "}"]))


def _list_operands(formula: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(re.findall(r"%(\w+)\[", formula)))


def _fill(dtype: DataType, values: Sequence[float]) -> Array:
    return np.resize(np.array(values, dtype.dtype), COUNT)
