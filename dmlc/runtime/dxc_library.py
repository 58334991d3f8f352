"""Library of the DirectX shader compiler: its location, and calls of its objects.

The library (`libdxcompiler`) has COM objects, with a table of functions and a reference count. This
module loads it and wraps such objects in context managers that release them. `dxc` calls their
functions.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import pathlib
import sys
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from dmlc.processes import find_program
from dmlc.source import InternalError, UnavailableError

LIBRARY_VARIABLE = "DMLC_DXC"
"""Environment variable with the path of the library, or of its folder."""

_WHEEL = "compushady"
_FILE_NAMES = (
    ("dxcompiler.dll",)
    if sys.platform == "win32"
    else ("libdxcompiler_x86_64.so", "libdxcompiler.so", "libdxcompiler.dylib")
)
_HOW_TO_INSTALL = (
    "install it with: pip install dmlc[vulkan]",
    f"or name the library of a DXC of your own in the environment variable {LIBRARY_VARIABLE}",
)


def find_library() -> pathlib.Path:
    """File of the compiler's library.

    It is searched in this order: the environment variable `DMLC_DXC` (a file, or a folder that
    holds one); the Python package that `dmlc[vulkan]` installs; the folder of a `dxc` on the PATH.
    UnavailableError if there is none, or if the variable names a place without one.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        found = _library_at(pathlib.Path(named))
        if found is None:
            raise UnavailableError(
                f"no DXC library at {named}, which the environment variable {LIBRARY_VARIABLE} "
                "names",
                notes=(f"expected a file, or a folder with one of {', '.join(_FILE_NAMES)}",),
            )
        return found
    for folder in _usual_folders():
        found = _library_at(folder)
        if found is not None:
            return found
    raise UnavailableError(
        "the DirectX shader compiler (DXC) is not installed", None, _HOW_TO_INSTALL
    )


def _library_at(place: pathlib.Path) -> pathlib.Path | None:
    if place.is_file():
        return place
    return next((place / n for n in _FILE_NAMES if (place / n).is_file()), None)


def _usual_folders() -> list[pathlib.Path]:
    folders: list[pathlib.Path] = []
    # The package is found, not imported: importing it would load its graphics back ends.
    spec = importlib.util.find_spec(_WHEEL)
    if spec is not None:
        folders += [pathlib.Path(p) / "backends" for p in spec.submodule_search_locations or ()]
    program = find_program("dxc")
    if program is not None:
        beside = pathlib.Path(program).resolve().parent
        folders += [beside, beside.parent / "lib"]
    return folders


class Guid(ctypes.Structure):
    """Identifier in the library's binary form."""

    _fields_ = (("bytes_le", ctypes.c_ubyte * 16),)

    @classmethod
    def of(cls, identifier: uuid.UUID) -> Guid:
        return cls.from_buffer_copy(identifier.bytes_le)


@functools.cache
def _prototype(result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, ctypes.c_void_p, *arguments)


def call_slot(
    address: int, slot: int, result: Any, arguments: Sequence[tuple[Any, Any]] = ()
) -> Any:
    """Calls function number `slot` of the object at `address`. Each argument is a ctypes type and a
    value. The interpreter's lock is released during the call."""
    table = ctypes.c_size_t.from_address(address).value
    function = ctypes.c_size_t.from_address(table + slot * ctypes.sizeof(ctypes.c_size_t)).value
    prototype = _prototype(result, *(t for t, _ in arguments))
    return prototype(function)(address, *(v for _, v in arguments))


class ComObject:
    """Reference to an object, released when the `with` block ends."""

    __slots__ = ("_address",)
    _RELEASE_SLOT = 2

    def __init__(self, address: int) -> None:
        self._address: int | None = address

    @property
    def address(self) -> int:
        if self._address is None:
            raise InternalError("an object of the shader compiler was used after its release")
        return self._address

    def __enter__(self) -> ComObject:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Releases the reference; a second call does nothing."""
        if self._address is not None:
            address, self._address = self._address, None
            call_slot(address, self._RELEASE_SLOT, ctypes.c_ulong)

    def call(self, slot: int, *arguments: tuple[Any, Any], result: Any = ctypes.c_int32) -> Any:
        """Calls a function of the object, and returns its result."""
        return call_slot(self.address, slot, result, arguments)

    def make(self, what: str, slot: int, *arguments: tuple[Any, Any]) -> ComObject:
        """Calls a function whose last argument receives a new object."""
        made = ctypes.c_size_t()
        check(self.call(slot, *arguments, (ctypes.c_void_p, ctypes.addressof(made))), what)
        if not made.value:
            raise InternalError(f"the shader compiler gave nothing for: {what}")
        return ComObject(made.value)


def check(status: int, what: str) -> None:
    """Raises InternalError for an error status; `what` names the action."""
    if status < 0:
        raise InternalError(f"the shader compiler failed to {what}: {status & 0xFFFFFFFF:#010x}")


class Library:
    """Loaded library. It is thread-safe; each object that it makes is for one thread."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        try:
            self._companions = _load_companions(path)
            library = ctypes.CDLL(str(path))
            create: Callable[..., int] = library.DxcCreateInstance
        except (OSError, AttributeError) as error:
            raise UnavailableError(
                f"{path} cannot be loaded as the DXC library: {error}", None, _HOW_TO_INSTALL
            ) from error
        self._library = library
        self._create = create

    def create(self, interface: uuid.UUID, kind: uuid.UUID) -> ComObject:
        """Interface of a new object of a class."""
        made = ctypes.c_size_t()
        status = self._create(
            ctypes.byref(Guid.of(kind)), ctypes.byref(Guid.of(interface)), ctypes.byref(made)
        )
        check(status, f"make an object of class {kind}")
        return ComObject(made.value)

    @functools.cached_property
    def identity(self) -> tuple[str, int, int]:
        """Identity of the library: its file, with size and time of change."""
        status = self.path.stat()
        return str(self.path), status.st_size, status.st_mtime_ns

    @property
    def signs(self) -> bool:
        """Whether `dxil.dll` signs the DXIL it makes: on Windows only."""
        return bool(self._companions)


def _load_companions(path: pathlib.Path) -> tuple[ctypes.CDLL, ...]:
    """On Windows, `dxil.dll` of the library's folder, loaded first so that it is the one that
    signs."""
    if sys.platform != "win32":
        return ()
    signer = path.with_name("dxil.dll")
    return (ctypes.CDLL(str(signer)),) if signer.is_file() else ()


@functools.lru_cache(maxsize=8)
def _load(path: pathlib.Path) -> Library:
    return Library(path)


def load_library() -> Library:
    """Library found by `find_library`, loaded once per file."""
    return _load(find_library().resolve())
