"""How long whole processes take: `dmlc --help`, and compiling one operator."""

from __future__ import annotations

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
    """Median seconds of each command as a whole process, after one run to fill file caches."""
    found: dict[str, float] = {}
    for name, arguments in COMMANDS.items():
        times: list[float] = []
        for _ in range(runs + 1):
            with tempfile.TemporaryDirectory(prefix="dmlc-bench-") as folder:
                extra = ("-o", folder) if "compile" in arguments else ()
                start = time.perf_counter()
                subprocess.run([*_DMLC, *arguments, *extra], check=True, capture_output=True)
                times.append(time.perf_counter() - start)
        found[name] = statistics.median(times[1:])
    return found
