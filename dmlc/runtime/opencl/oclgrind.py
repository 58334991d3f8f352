"""OpenCL kernels under Oclgrind, a simulator that checks every access of every work item.

Oclgrind replaces all OpenCL drivers of a process, so it runs in a process of its own (`simulated`),
which takes programs with their arrays, and returns what Oclgrind has logged. `find_objections`
starts the process at the first call and keeps it for later ones.

Oclgrind's check for uninitialised reads is not used: it fails on instructions that LLVM makes of
plain C (`freeze`). `fences` finds reads that change a result."""

from __future__ import annotations

import atexit
import os
import pickle
import re
import select
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from dmlc.processes import find_program, python_command, python_environment
from dmlc.program import KernelSource, Program
from dmlc.runtime.arrays import Array, Shape
from dmlc.source import DmlcError, UnavailableError

SECONDS = 120.0
"""How long a run may take: Oclgrind interprets, some thousand times slower than a device."""

_INSTALL = "on Debian or Ubuntu: apt-get install oclgrind"
_PROGRAM = "dmlc.runtime.opencl.simulated"


def find_oclgrind() -> str | None:
    """Path of Oclgrind; None if it is not installed. Not every release of Debian has it."""
    return find_program("oclgrind")


def find_objections(
    program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Shape]
) -> list[str]:
    """Errors that Oclgrind reports for a run, one sentence each: accesses outside buffers and
    arrays, and races between work items. `outputs` gives the sizes of outputs. Raises
    `UnavailableError` without Oclgrind, and `DmlcError` for programs that cannot run under it."""
    given = {name: (_cut_repeats(array), array.shape) for name, array in inputs.items()}
    log, error = _simulator.ask((program, given, dict(outputs)))
    if error:
        raise DmlcError(f"{program.name} does not run under Oclgrind: {error}")
    return read_log(log, program)


def _cut_repeats(array: Array) -> Array:
    """Array without the elements that strides of 0 repeat, which would be sent to the other process
    one by one. It is broadcast there."""
    return array[tuple(slice(None if step else 1) for step in array.strides)]


_PARAGRAPH = re.compile(r"^(?=\S)", re.MULTILINE)
_KERNEL = re.compile(r"Kernel: (\w+)")
_ITEM = re.compile(r"(?:Entity|First entity): *Global(\(\d+,\d+,\d+\))")
_LINE = re.compile(r"At line (\d+) \(column \d+\) of ")
_ADDRESS = re.compile(r" address 0x[0-9a-f]+")
_NUMBER = re.compile(r"\d+")


def read_log(log: str, program: Program) -> list[str]:
    """Errors in a log of Oclgrind: one sentence for each kind at each line of a kernel, with the
    buffers that the line names."""
    kernels = {kernel.entry_point: kernel for kernel in program.kernels}
    first: dict[tuple[str, ...], str] = {}
    counts: Counter[tuple[str, ...]] = Counter()
    for text in _PARAGRAPH.split(log):
        said, _, rest = text.strip().partition("\n")
        said = _ADDRESS.sub("", said)
        if not said:
            continue
        name, item = _KERNEL.search(rest), _ITEM.search(rest)
        kernel = kernels.get(name[1]) if name else None
        lines = tuple(_LINE.findall(rest))
        key = (_NUMBER.sub("", said), name[1] if name else "", *lines)
        counts[key] += 1
        where = "" if kernel is None else _describe(kernel, [int(line) for line in lines])
        at = f", work item {item[1]}" if item else ""
        first.setdefault(key, f"{where}{said}{at}")
    return [f"{said} (said {counts[key]:,} times)" for key, said in first.items()]


def _describe(kernel: KernelSource, lines: list[int]) -> str:
    source = kernel.source.splitlines()
    shown = [f"line {n}: `{source[n - 1].strip()}`" for n in lines if n <= len(source)]
    words = {word for n in lines if n <= len(source) for word in re.findall(r"\w+", source[n - 1])}
    tensors = [buffer.tensor for buffer in kernel.buffers if buffer.name in words]
    about = f" ({', '.join(tensors)})" if tensors else ""
    return f"the kernel {', '.join([kernel.name, *shown])}{about}: "


class _Simulator:
    """Process under Oclgrind, started when first needed. Threads use it one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def ask(self, question: object) -> tuple[str, str]:
        """Oclgrind's log of a run, and the reason if there is none. A process that stops is started
        again once, as its compiler crashes now and then."""
        with self._lock:
            found = self._ask(question) or self._ask(question)
            return found or ("", "Oclgrind itself stopped")

    def _ask(self, question: object) -> tuple[str, str] | None:
        """Oclgrind's log of a run, and the reason if there is none; None if the process stopped."""
        process = self._process or self._start()
        if process.stdin is None or process.stdout is None:
            raise AssertionError("the process has no pipes")
        try:
            pickle.dump(question, process.stdin)
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], SECONDS)
            answer = pickle.load(process.stdout) if ready else None
        except (EOFError, BrokenPipeError):
            self.stop()
            return None
        if answer is None or answer[0]:
            # It falls silent after so many objections: the next program gets a new one.
            self.stop()
        return answer or ("", f"it takes more than {SECONDS:.0f} seconds")

    def _start(self) -> subprocess.Popen[bytes]:
        command = find_oclgrind()
        if command is None:
            raise UnavailableError("Oclgrind is not installed", notes=[_INSTALL])
        self._folder = tempfile.TemporaryDirectory(prefix="dmlc-oclgrind-")
        log = str(Path(self._folder.name) / "log")
        self._process = subprocess.Popen(
            [command, "--data-races", "--log", log, *python_command(_PROGRAM, log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=python_environment(),
        )
        return self._process

    def stop(self) -> None:
        """Ends the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._folder = None

    def after_fork(self) -> None:
        """Drops the parent's process, and its lock, which one of the parent's threads may hold."""
        self.__init__()


_simulator = _Simulator()
atexit.register(_simulator.stop)
os.register_at_fork(after_in_child=_simulator.after_fork)
