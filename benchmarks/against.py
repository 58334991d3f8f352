"""`python -m benchmarks --against PATH`: this dmlc beside that of another checkout, row by row.

Each has a process of its own, with the benchmarks and the arrays of this checkout. Samples of the
two are taken in turns, so that both see the same machine, and the figures are medians.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import dmlc
from benchmarks.gpu import Case, list_cases
from benchmarks.measure import measure, repeats_for, sample
from benchmarks.table import lay_out, show_time

MOST = 1.05
"""What a row may take, by its time in the other checkout."""

ROOT = pathlib.Path(__file__).resolve().parents[1]
_SERVE = """
import json, sys
sys.path[0] = sys.argv[1]
import dmlc
sys.path[0] = sys.argv[2]
from benchmarks.against import serve
serve(*json.loads(sys.argv[3]))
"""
"""The dmlc of one checkout, and the benchmarks of another."""


class Side:
    """The process of a checkout."""

    def __init__(self, checkout: pathlib.Path, *chosen: Sequence[str]) -> None:
        command = [sys.executable, "-c", _SERVE, str(checkout), str(ROOT), json.dumps(chosen)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def sample(self, number: int) -> float:
        """Seconds of the case of that number. Raises `DmlcError` where the checkout cannot run it,
        and ends the program where its process does not answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        print(number, file=stdin, flush=True)
        line = stdout.readline()
        if not line:
            raise SystemExit(f"a process of --against has ended with {self._process.wait()}")
        found = json.loads(line)
        if isinstance(found, str):
            raise dmlc.DmlcError(found)
        return found

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def compare(
    other: pathlib.Path,
    operators: Sequence[str],
    types: Sequence[str],
    sizes: Sequence[str],
    rounds: int,
) -> int:
    """Prints a table of both checkouts' bound calls; 1 where a row takes over `MOST` of the other
    one's time, and else 0."""
    sides = [Side(checkout, operators, types, sizes) for checkout in (other, ROOT)]
    rows, slower = [["row", "before", "now", "ratio"]], 0
    try:
        for number, case in enumerate(list_cases(operators, types, sizes)):
            title = f"{case.title}, {case.name}"
            print(title, file=sys.stderr)
            try:
                for side in sides:
                    side.sample(number)
            except dmlc.DmlcError as error:
                rows.append([title, "-", "-", error.diagnostics[0].message])
                continue
            names = {str(n): functools.partial(side.sample, number) for n, side in enumerate(sides)}
            before, now = measure(names, rounds).values()
            over = now > MOST * before
            slower += over
            shown = f"{now / before:.2f}{' slower' if over else ''}"
            rows.append([title, show_time(before), show_time(now), shown])
    finally:
        for side in sides:
            side.close()
    print(lay_out(rows))
    return 1 if slower else 0


def serve(operators: Sequence[str], types: Sequence[str], sizes: Sequence[str]) -> None:
    """Reads numbers of cases from standard input, and writes the seconds of a sample of each, or
    why there are none."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cases = list_cases(operators, types, sizes)
    last, take = -1, float
    for line in sys.stdin:
        number = int(line)
        try:
            if number != last:
                last, take = number, _start(cases[number])
            found: float | str = take()
        except dmlc.DmlcError as error:
            found = error.diagnostics[0].message
        print(json.dumps(found), file=out, flush=True)


def _start(case: Case) -> functools.partial[float]:
    """How to take a sample of a case, once it has been seen to give the right result."""
    task = case.make()
    executable = dmlc.load_program(dmlc.compile(task.function))
    call = executable.bind(task.inputs, task.outputs)
    call()
    if not task.accepts(task.outputs[task.result]):
        raise dmlc.DmlcError(f"{case.title}, {case.name}: a wrong result")
    return functools.partial(sample, call, repeats_for(call))
