"""Runs a case everywhere and holds the results against what they may be."""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections import Counter
from collections.abc import Sequence

import numpy as np

from dmlc.source import DmlcError, UnsupportedError
from tests.fuzz.cases import Case
from tests.fuzz.devices import BACKENDS, Backend
from tests.fuzz.possible import Values, Wholes, find_wrong
from tests.fuzz.shrink import shrink


class Finding(AssertionError):
    """A case that fails: what kind of failure, where, and how to see it again."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclasses.dataclass
class Checker:
    """Runs cases. Once one fails on a backend, that alone is looked at: cases are shrunk then."""

    backends: Sequence[str] = tuple(BACKENDS)
    ran: Counter[str] = dataclasses.field(default_factory=Counter)
    turns: bool = False
    """Whether a case runs on one device only, each in its turn."""
    failing: str | None = None
    kind: str | None = None
    last: Finding | None = None

    def check(self, case: Case) -> None:
        """Raises `Finding`."""
        names = [self.failing] if self.failing in BACKENDS else self._choose(case)
        try:
            function = case.bind()
        except Exception as problem:
            self._fail("bind", case, "bind", problem)
            return
        inputs = case.inputs()
        expected: dict[object, dict[str, Values]] = {}
        for name in names:
            backend = BACKENDS[name]
            if backend.rules not in expected:
                try:
                    expected[backend.rules] = case.expected(backend.rules, inputs)
                except Exception:
                    if self.kind is not None:
                        return  # A tree that was cut into one that the language has not.
                    raise
            self._run(case, backend, function, inputs, expected[backend.rules])

    def _choose(self, case: Case) -> list[str]:
        """The backends that a case runs on."""
        if not self.turns:
            return list(self.backends)
        devices = [b for b in self.backends if BACKENDS[b].device]
        chosen = devices[case.seed % len(devices)] if devices else None
        return [b for b in self.backends if b == chosen or b not in devices]

    def fails(self, case: Case) -> bool:
        """Whether a case fails as the last one that failed did."""
        try:
            self.check(case)
        except Finding as finding:
            self.last = finding
            return True
        return False

    def shrink(self, case: Case, finding: Finding, seconds: float = 60.0) -> Finding:
        """The finding on the smallest case that shows it."""
        self.last = finding
        shrink(case, self.fails, seconds)
        return self.last

    def _run(self, case, backend: Backend, function, inputs, expected) -> None:
        try:
            got = backend.run(function, inputs)
        except UnsupportedError:
            if not backend.name.endswith(("cpu", "gpu", "bounds")) or function.symbols():
                self.ran[f"{backend.name}, refused"] += 1
                return
            raise
        except Exception as problem:
            self._fail(backend.name, case, backend.name, problem)
            return
        self.ran[backend.name] += len(got)
        for name, values in expected.items():
            wrong = find_wrong(values, got[name])
            if wrong.any():
                self._differ(case, backend, name, values, got[name], wrong, inputs)

    def _fail(self, failing: str, case: Case, where: str, problem: Exception) -> None:
        frames = traceback.extract_tb(problem.__traceback__)
        last = frames[-1]
        kind = f"{where}: {type(problem).__name__}"
        if isinstance(problem, DmlcError):
            kind += f" {_bare(problem)}"
        else:
            kind += f" in {last.filename.rsplit('/', 1)[-1]} {last.name}"
        self._raise(failing, kind, f"{kind}\n{problem}\n{case.describe()}")

    def _differ(self, case, backend: Backend, name, values, got, wrong, inputs) -> None:
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        kind = f"{backend.name}: wrong {got.dtype}"
        lines = [
            f"{kind}: {int(wrong.sum())} of {got.size} elements of {name}, "
            f"first {name}{list(place)} = {got[place]!r}, {_show_possible(values, place)}",
        ]
        lines += [
            f"  {n}{list(p)} = {a[p]!r}"
            for n, a in inputs.items()
            for p in [_nearest(place, a.shape)]
            if p is not None
        ]
        self._raise(backend.name, kind, "\n".join([*lines, case.describe()]))

    def _raise(self, failing: str, kind: str, message: str) -> None:
        if self.kind is not None and kind != self.kind:
            return  # Another failure: this one is being shrunk.
        self.failing, self.kind = failing, kind
        raise Finding(kind, message)


def _bare(problem: Exception) -> str:
    """What an error says, without names and numbers."""
    first = str(problem).splitlines()[0]
    first = re.sub(r"^\S*: error: |pthread\S*|F_\d+", "", first)
    return re.sub(r"'[^']*'|-?\d+", "_", first)[:120]


def _nearest(place: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if len(place) != len(shape) or 0 in shape:
        return None
    return tuple(min(p, n - 1) for p, n in zip(place, shape, strict=True))


def _show_possible(values: Values, place: tuple[int, ...]) -> str:
    if isinstance(values, Wholes):
        return f"and must be {values.value[place]!r}"
    low, high, nan = (np.broadcast_to(a, np.broadcast_shapes(values.low.shape))[place]
                      for a in (values.low, values.high, values.nan))  # fmt: skip
    if low > high:
        return "and must be nan"
    return f"and must lie in {low!r} to {high!r}{', or be nan' if nan else ''}"
