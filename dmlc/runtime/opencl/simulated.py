"""Process whose only OpenCL device is Oclgrind, started by `oclgrind`.

It reads questions from standard input, runs each program, and writes what Oclgrind has logged
meanwhile to standard output. Its argument is the path of the log."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import numpy as np

from dmlc.runtime.opencl.driver import discover, open_session
from dmlc.runtime.opencl.executable import Executable
from dmlc.source import DmlcError


def main(log: Path) -> None:
    """Answers questions until the end of the input."""
    answers = os.fdopen(os.dup(1), "wb")
    # What else writes to standard output must not come between the answers.
    os.dup2(2, 1)
    seen = 0
    while True:
        try:
            program, given, outputs = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        inputs = {name: np.broadcast_to(array, sizes) for name, (array, sizes) in given.items()}
        error = ""
        try:
            Executable(program, open_session(discover()[0]))(inputs, outputs)
        except DmlcError as problem:
            error = problem.diagnostics[0].message
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        pickle.dump((text[seen:], error), answers)
        answers.flush()
        seen = len(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
