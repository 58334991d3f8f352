"""Harness in several processes, since building kernels occupies one core each. A process gets the
names of operators and reads them itself, and returns the outcomes without their arrays."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import warnings
from collections.abc import Generator, Sequence

from dmlc.binding import Operator
from dmlc.catalog import load, operator
from dmlc.processes import isolating_workers
from dmlc.progress import track
from dmlc.source import Diagnostic
from dmlc.testing.findings import find_mistakes
from dmlc.testing.harness import OperatorTest, Settings, Summary
from dmlc.testing.outcome import Outcome

_PHASE = "testing operators"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Operator by name, of the library or of a file."""

    name: str
    path: str | None = None
    folders: tuple[str, ...] = ()
    """Folders that a file may import from."""

    def find(self) -> Operator:
        """Operator itself. Raises `DmlcError` for errors in its file."""
        if self.path is None:
            return operator(self.name)
        return load(self.path, self.folders).operators[self.name]


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """Outcomes of one operator."""

    name: str
    outcomes: tuple[Outcome, ...]
    summary: Summary
    findings: tuple[Diagnostic, ...] = ()
    """Warnings about an operator without a failed case."""


def run_targets(targets: Sequence[Target], settings: Settings, jobs: int) -> Generator[Done]:
    """Outcomes of each operator's cases, in the order of the operators."""
    if jobs == 1 or len(targets) == 1:
        for target in track(_PHASE, targets):
            yield _run(target, settings)
        return
    # A forked process would share the drivers that this one has begun to use.
    context = multiprocessing.get_context("spawn")
    with (
        isolating_workers(),
        concurrent.futures.ProcessPoolExecutor(
            min(jobs, len(targets)), context, _ignore_warnings
        ) as pool,
    ):
        running = [pool.submit(_run, target, settings) for target in targets]
        try:
            for future in track(_PHASE, running):
                yield future.result()
        finally:
            for future in running:
                future.cancel()


def _ignore_warnings() -> None:
    """Silences warnings about devices, which the first process has shown already."""
    warnings.simplefilter("ignore")


def _run(target: Target, settings: Settings) -> Done:
    test = OperatorTest(target.find(), settings)
    outcomes = tuple(outcome.without_arrays() for outcome in test.run())
    # An error in an example, or in every call, is a failed case already.
    found = [d for d in find_mistakes(test.operator) if d.warning or d.code == "E0503"]
    return Done(test.operator.name, outcomes, test.summarize(), tuple(found))
