"""What DXC says of DXIL that it made: its text, and its validator's errors."""

from __future__ import annotations

import ctypes
import uuid

from dmlc.runtime import dxc
from dmlc.runtime.dxc_library import load_library
from dmlc.source import InternalError

DISASSEMBLY = 5  # a kind of output
VALIDATOR = (
    uuid.UUID("a6e82bd2-1fd7-4826-9811-2857e797f49a"),
    uuid.UUID("8ca3e215-f728-4cf3-8cdd-88af917587a1"),
)


def disassemble(dxil: bytes) -> str:
    """Text form of a DXIL container."""
    buffer = dxc._Buffer(dxil, len(dxil), 0)
    with (
        load_library().create(*dxc._COMPILER) as compiler,
        compiler.make(
            "disassemble a shader",
            4,
            (ctypes.c_void_p, ctypes.addressof(buffer)),
            *dxc._wanted(dxc._RESULT),
        ) as result,
    ):
        if dxc._status(result) < 0:
            said = dxc._output(result, dxc._ERRORS, dxc._TEXT).decode(errors="replace")
            raise InternalError(f"DXC cannot disassemble what it was given: {said.strip()}")
        return dxc._output(result, DISASSEMBLY, dxc._TEXT).decode(errors="replace")


def validate(dxil: bytes) -> tuple[str, ...]:
    """Errors of the validator for a DXIL container; empty if it is valid."""
    library = load_library()
    with (
        library.create(*dxc._UTILITIES) as utilities,
        utilities.make(
            "copy a shader",
            6,
            (ctypes.c_char_p, dxil),
            (ctypes.c_uint32, len(dxil)),
            (ctypes.c_uint32, 0),
        ) as blob,
        library.create(*VALIDATOR) as validator,
        validator.make(
            "validate a shader", 3, (ctypes.c_void_p, blob.address), (ctypes.c_uint32, 0)
        ) as result,
    ):
        if dxc._status(result) >= 0:
            return ()
        with result.make("give its errors", 5) as errors:
            said = dxc._contents(errors).rstrip(b"\0").decode(errors="replace")
        return tuple(said.splitlines()) or ("it gave no reason",)
