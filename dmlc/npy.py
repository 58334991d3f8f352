"""Reader of NumPy's files of one array, from any source. Pickled objects are never read."""

from __future__ import annotations

import tokenize
import warnings
from typing import BinaryIO

import numpy as np

from dmlc.scalars import Array

_LONGEST_HEADER = 1 << 16
"""Largest header that is read, in bytes: since version 2 a header may claim 4 GiB."""


def read_npy(file: BinaryIO) -> Array:
    """Array of a `.npy` file of any version and order, as stored. Raises `ValueError` with the
    reason for an invalid file, and `OSError` as the file does."""
    try:
        start = file.read(12)
        if start[6:7] > b"\1" and int.from_bytes(start[8:], "little") > _LONGEST_HEADER:
            raise ValueError("a header is far shorter")
        file.seek(0)
        with warnings.catch_warnings():
            # Such as a remark on files that Python 2 wrote: they are read all the same.
            warnings.simplefilter("ignore")
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except (
        ValueError, EOFError, SyntaxError, TypeError, KeyError, MemoryError, OverflowError,
        RecursionError, tokenize.TokenError,
    ) as error:  # fmt: skip
        raise ValueError(_reason(error)) from error
    return array


def _reason(error: Exception) -> str:
    text = str(error)
    if "Object arrays" in text:
        return "it holds Python objects"
    if "EOF: reading" in text or "Failed to read all data" in text or "cannot reshape" in text:
        return "it is cut short"
    if "magic string" in text:
        return "it does not begin as one"
    if isinstance(error, MemoryError):
        return "it says that it is larger than memory"
    return "its header is damaged"
