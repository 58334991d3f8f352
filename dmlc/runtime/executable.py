"""Common base of the executables of all runtimes: arrays in, arrays out.

The usual call goes the short way of `quick`; everything else goes through `placement`, which
checks, copies and explains.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from dmlc.program import Program
from dmlc.runtime.arrays import Array, Copy
from dmlc.runtime.foreign import Given
from dmlc.runtime.placement import Inputs, Outputs, Placement, place, read_call
from dmlc.runtime.profile import RUNS, Timed, Timings, measure
from dmlc.runtime.quick import QuickPlan
from dmlc.runtime.report import Report
from dmlc.source import InternalError

Give: TypeAlias = Callable[[], dict[str, Any]]
"""Function that returns the outputs of a run as the caller's library has them."""


class BoundCall(Timed, Protocol):
    """Run bound to its arrays: a call runs it, and returns the outputs."""

    def __call__(self) -> dict[str, Any]: ...


CallType = TypeVar("CallType", bound=BoundCall, covariant=True)


class ArrayExecutable(abc.ABC, Generic[CallType]):
    """Program built for a device. Thread-safe."""

    def __init__(self, program: Program, report: Report, quick: QuickPlan | None = None) -> None:
        """`report` is that of a run without copies."""
        self.program = program
        self.input_names = tuple(t.name for t in program.inputs)
        self.output_names = tuple(t.name for t in program.outputs)
        self._quick = quick
        self._quiet = report
        self.last_report = report
        """Report of the latest call of any thread."""

    def __repr__(self) -> str:
        return f"<executable {self.program.name} on {self._quiet.device}>"

    @abc.abstractmethod
    def run_placed(self, placement: Placement) -> float | None:
        """Runs on the arrays of a placement. Returns the seconds that the kernels took by the
        device's clock, if they were timed."""

    @abc.abstractmethod
    def bind_placed(self, placement: Placement, give: Give, report: Report) -> CallType:
        """Run bound to the arrays of a placement."""

    def run_quick(self, quick: QuickPlan, arrays: list[Array]) -> float | None:
        """Runs on inputs and outputs that `quick` has checked. Returns as `run_placed` does."""
        raise InternalError(f"{self!r} has no quick plan")

    def place(self, call: Given) -> Placement:
        """Memory of the tensors of a run."""
        return place(self.program, call, gaps=False)

    def __call__(self, inputs: Inputs, outputs: Outputs | None = None) -> dict[str, Any]:
        """Runs the program once.

        `inputs` maps every input tensor's name to an array, or lists an array for each in order;
        `outputs` may give arrays to write into, or sizes. Arrays are NumPy's or of any library that
        shares memory, as `dmlc.run` takes them. Returns every output by name, as an array of the
        first such library, or NumPy's; a given array is returned itself. Raises `DmlcError` for
        arrays that do not fit the program and for errors of the device, `UnsupportedError` for
        sizes over its limits.
        """
        results, self.last_report = self.run(inputs, outputs)
        return results

    def run(self, inputs: Inputs, outputs: Outputs | None = None) -> tuple[dict[str, Any], Report]:
        """Runs the program, and returns the outputs with the report of this very run."""
        quick = self._quick
        arrays = None if quick is None else quick.match(inputs, outputs)
        if quick is not None and arrays is not None:
            return self._run_quick(quick, arrays)
        call = read_call(self.input_names, inputs, outputs)
        found, report = self.run_given(call)
        return call.hand_over(found), report

    def run_given(self, call: Given) -> tuple[dict[str, Array], Report]:
        """Runs the program on a caller's arrays converted to NumPy's."""
        quick = self._quick
        arrays = None if quick is None else quick.match(call.inputs, call.outputs, call.large)
        if quick is not None and arrays is not None:
            return self._run_quick(quick, arrays)
        placement = self.place(call)
        seconds = self.run_placed(placement)
        return self._results(placement), self._report(placement.copies, seconds)

    def _run_quick(self, quick: QuickPlan, arrays: list[Array]) -> tuple[dict[str, Array], Report]:
        seconds = self.run_quick(quick, arrays)
        results = dict(zip(self.output_names, arrays[len(self.input_names) :], strict=True))
        return results, self._report((), seconds)

    def bind(self, inputs: Inputs, outputs: Outputs | None = None) -> CallType:
        """Binds a run to its arrays. The call that is returned reads the current contents of the
        input arrays, and writes the same output arrays each time; for a library of immutable
        arrays, new ones."""
        call = read_call(self.input_names, inputs, outputs)
        placement = self.place(call)
        give, copies = call.keep(self._results(placement))
        return self.bind_placed(placement, give, self._report((*placement.copies, *copies)))

    def profile(self, inputs: Inputs, outputs: Outputs | None = None, runs: int = RUNS) -> Timings:
        """Times of the kernels on these arrays: the medians of several runs, by the device's clock,
        with launches that do not overlap. `print` shows it as a table. Raises `UnsupportedError`
        for a device without such a clock."""
        return measure(self.program, self._quiet.device, self.bind(inputs, outputs), runs)

    def _results(self, placement: Placement) -> dict[str, Array]:
        return {name: placement.operands[name].array for name in self.output_names}

    def _report(self, copies: tuple[Copy, ...], seconds: float | None = None) -> Report:
        if not copies and seconds is None:
            return self._quiet
        return dataclasses.replace(self._quiet, copies=copies, seconds=seconds)
