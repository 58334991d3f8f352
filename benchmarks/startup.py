"""How long whole processes take: `dmlc --help`, and compiling one operator."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

_DMLC = (sys.executable, "-c", "from dmlc.cli import main; main()")
COMMANDS = {
    "dmlc --help": ("--help",),
    "dmlc compile, one operator": ("compile", "directml.ACTIVATION_RELU_GRAD", "--target", "all"),
}


def measure_startup(runs: int) -> dict[str, float]:
    """Median seconds of each command as a whole process, after one run to fill file caches and
    Python's own: an installed package has its bytecode beside it, whatever this process writes."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="dmlc-bytecode-") as bytecode:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        for name, arguments in COMMANDS.items():
            times = [_run(arguments, environment) for _ in range(runs + 1)]
            found[name] = statistics.median(times[1:])
    return found


def _run(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    """The seconds of one process."""
    with tempfile.TemporaryDirectory(prefix="dmlc-bench-") as folder:
        extra = ("-o", folder) if "compile" in arguments else ()
        command = [*_DMLC, *arguments, *extra]
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        return time.perf_counter() - start
