"""Builds `limit.c` with the machine's C compiler and calls it in this process."""

from __future__ import annotations

import ctypes
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

SOURCE = pathlib.Path(__file__).with_name("limit.c")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-Wall")


class Limit:
    """The fastest of several plain C loops that move the bytes of a kernel."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        with tempfile.TemporaryDirectory(prefix="dmlc-limit-") as folder:
            library = pathlib.Path(folder) / "limit.so"
            subprocess.run(["cc", *FLAGS, "-o", library, SOURCE], check=True)
            self._library = ctypes.CDLL(str(library))
        self._library.limit_time.restype = ctypes.c_double
        self._library.limit_time.argtypes = [
            ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
            ctypes.c_size_t, ctypes.c_int,
        ]  # fmt: skip
        self._library.limit_fold_time.restype = ctypes.c_double
        self._library.limit_fold_time.argtypes = [
            ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
            ctypes.c_size_t, ctypes.c_int,
        ]  # fmt: skip
        self._library.limit_merge_time.restype = ctypes.c_double
        self._library.limit_merge_time.argtypes = [
            ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p,
            ctypes.c_size_t, ctypes.c_int,
        ]  # fmt: skip
        self.variants: int = self._library.limit_variants()

    def seconds(
        self,
        variant: int,
        reads: Sequence[npt.NDArray[Any]],
        out: npt.NDArray[Any],
        repeats: int,
    ) -> float:
        """The time of one pass, timed in C over `repeats` passes: over two arrays that are read
        and one that is written, all of one size; or over three or four, in whole cache lines; or
        over one that is read and a smaller one, in whole cache lines, that is written."""
        if len(reads) == 1:
            (read,) = reads
            found: float = self._library.limit_fold_time(
                variant, self.threads, read.ctypes.data, read.nbytes, out.ctypes.data, out.nbytes,
                repeats,
            )  # fmt: skip
        elif len(reads) > 2:
            pointers = (ctypes.c_void_p * len(reads))(*(a.ctypes.data for a in reads))
            found = self._library.limit_merge_time(
                variant, self.threads, pointers, len(reads), out.ctypes.data, out.nbytes, repeats
            )
        else:
            first, second = reads
            found = self._library.limit_time(
                variant, self.threads, first.ctypes.data, second.ctypes.data, out.ctypes.data,
                first.nbytes, repeats,
            )  # fmt: skip
        return found
