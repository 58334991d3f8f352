"""Texts and files from strangers: mutants of good ones, which are taken or refused in words.

A reader that raises anything but `DmlcError`, takes more than `SECONDS`, or has the process grow
by more than `MEMORY`, is a finding. What a mutant means, nobody knows: results are not looked at.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import random
import re
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import numpy as np

import dmlc
from dmlc import ir, pages
from dmlc.cli.arrays import read_array
from dmlc.interop.proof import find_function
from dmlc.kernel.json import kernel_from_json, kernel_to_json
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.print import print_kernel
from dmlc.pipeline import compile, make_kernels
from dmlc.program import describe_programs
from dmlc.qualify.compare import compare_records
from dmlc.qualify.page import write_page
from dmlc.qualify.record import read_record, write_record
from dmlc.runtime.manifests import find_library
from dmlc.sizes import Size, find_least, parse_size
from dmlc.source import DmlcError
from dmlc.testing.replay import read_failure
from tests.fuzz.check import Finding
from tests.qualify.records import FAILURE, fail, make_record

SECONDS = 10.0
_STOPPED = 2 * SECONDS
"""A reader that works as long is stopped."""
_BUSY = 20
"""How many times as long a reader may take on a machine that has much else to do."""
MEMORY = 2 << 30
MUTANTS = 25
"""To a batch."""
ROOT = Path(__file__).parents[2]

_PIECE = re.compile(rb"\w+|\s+|.", re.DOTALL)
_WORDS = (
    b"", b"(", b")", b"[", b"]", b"{", b"}", b'"', b"'", b"`", b"\\", b"%", b"@", b"|", b",", b"-",
    b"\0", b"\r", b"\n", b"\x1b[2J", b"\xff\xfe", "\u202e".encode(), "\u2028".encode(), b"0",
    b"-1", b"1e400", b"nan", b"null", b"true", b"9" * 5000, b"9223372036854775808", b"N", b"N * N",
    b"(" * 300, b"[" * 3000, b"(A + B) * " * 12 + b"2", b"1000000000000",
)  # fmt: skip
"""What parsers stumble over."""


def mutate(content: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """A content with a few pieces left out, repeated, exchanged with those of others, or put in;
    or with a few bits changed."""
    if source.random() < 0.2:
        changed = bytearray(content)
        for _ in range(source.choice([1, 1, 3, 20])):
            if changed:
                changed[source.randrange(len(changed))] ^= 1 << source.randrange(8)
        return bytes(changed[: source.randrange(len(changed) + 1)] if source.random() < 0.1
                     else changed)  # fmt: skip
    pieces = _PIECE.findall(content)
    other = _PIECE.findall(source.choice(others))
    for _ in range(source.choice([1, 1, 2, 5])):
        place = source.randrange(len(pieces) + 1)
        length = source.choice([0, 1, 1, 3, 20])
        start = source.randrange(len(other) or 1)
        new = source.choice([
            [], [source.choice(_WORDS)], [source.choice(other or [b""])],
            other[start : start + source.choice([1, 5, 40])], pieces[place : place + length] * 2,
        ])  # fmt: skip
        pieces[place : place + length] = new
    return b"".join(pieces)


# What reads it ---------------------------------------------------------------------------------


@functools.cache
def _functions() -> tuple[ir.Function, ...]:
    found = [
        ir.parse(text)
        for text in (
            "func @f(%a: f32[N, 8], %b: f32[(N + 1) / 2]) -> (%y) {\n"
            "  %y: f32[i0 < N] = sum[r0 < 8] mul(%a[i0, r0], 2.0)\n}",
            "func @g(%a: s32[40]) -> (%y, %z) {\n  table %t: f32[3] = {1.0, -0.5, 2.0}\n"
            "  %y: f32[i0 < 40] = add(cast(%a[i0], f32), %t[mod(i0, 3)])\n"
            "  %z: boolean[i0 < 40] = gt(%y[i0], 0.0)\n}",
        )
    ]
    names = ("directml.GEMM", "directml.AVERAGE_POOLING", "onednn.SoftMax")
    return (*found, *(find_function(dmlc.operator(name)) for name in names))


def _texts(suffix: str, folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rglob(f"*{suffix}"))]


def _decode(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _read_dml(content: bytes) -> None:
    parsed = dmlc.parse(_decode(content), filename="a.dml")
    for operator in parsed.operators.values():
        str(operator)


def _read_ir(content: bytes) -> None:
    function = ir.parse(_decode(content))
    str(function)
    if all(isinstance(e, str) or e < 1 << 16 for s in function.stages for e in s.extents):
        compile(function, "opencl")


def _read_kernel(content: bytes) -> None:
    print_kernel(parse_kernel(_decode(content)))


def _read_json(content: bytes) -> None:
    text = _decode(content)
    (kernel_from_json if '"launch"' in text else ir.from_json)(text)


def _read_page(content: bytes) -> None:
    made = pages.import_text(_decode(content), "page.rst" if b"::\n" in content else "page.md")
    dmlc.parse(made.text, filename="page.dml")


def _read_size(content: bytes) -> None:
    size = parse_size(_decode(content))
    find_least(size)
    if isinstance(size, Size):
        assert parse_size(str(size)) == size


def _make_kernels() -> list[bytes]:
    return [
        print_kernel(kernel).encode()
        for function in _functions()[:2]
        for target in ("opencl", "hlsl")
        for kernel in make_kernels(function, target)[1]
    ]


def _make_json() -> list[bytes]:
    texts = [ir.to_json(function) for function in _functions()]
    texts += [kernel_to_json(k) for k in make_kernels(_functions()[0], "opencl")[1]]
    return [text.encode() for text in texts]


_SIZES = (
    "N", "64 * N + 1", "3 * ((N + 63) / 64)", "(C * N + 63) / 64 * H", "((N + M) / 2 + 1) / 3 - N",
    "(A + B) * (A - B)", "2 * N * N - N",
)  # fmt: skip


_BETWEEN = b"\n#### next file ####\n"


@contextlib.contextmanager
def _unpack(content: bytes, *names: str) -> Generator[Path]:
    """A folder with files of these names, as far as a content has them."""
    with tempfile.TemporaryDirectory() as name:
        for file, part in zip(names, content.split(_BETWEEN), strict=False):
            (Path(name) / file).write_bytes(part)
        yield Path(name)


def _read_manifest(content: bytes) -> None:
    """With a kernel beside it, whose digest it has."""
    with _unpack(content, "manifest.json", "f.cl", "f.hlsl") as folder:
        dmlc.read_manifest(folder)


def _make_manifests() -> list[bytes]:
    function = ir.parse("func @f(%a: f32[N]) -> (%y) { %y: f32[i0 < N] = neg(%a[i0]) }")
    opencl, hlsl = (compile(function, target) for target in ("opencl", "hlsl"))
    made: list[bytes] = []
    for programs in ([opencl], [opencl, hlsl]):
        files = [p.kernels[0].source.encode() for p in programs]
        text = json.dumps(describe_programs(programs), indent=2)
        made.append(_BETWEEN.join([text.encode(), *files]))
    return made


def _read_driver(content: bytes) -> None:
    """A manifest of a driver is passed over where it is none."""
    with _unpack(content, "driver.json") as folder:
        found = find_library(folder / "driver.json", "libvulkan", {"LD_LIBRARY_PATH": str(folder)})
    if found is None:
        raise DmlcError("there is no driver")


_DRIVER = b"""{
    "ICD": {"api_version": "1.3.230", "library_path": "/usr/lib/libvulkan_lvp.so"},
    "file_format_version": "1.0.0"
}
"""


def _read_record(content: bytes) -> None:
    """What is said of two devices, and the page of one."""
    with _unpack(content, "qualification.json") as folder:
        record = read_record(folder / "qualification.json")
    for pair in ((record, make_record()), (make_record(), record)):
        compare_records(*pair).render()
    write_page(record)


def _make_records() -> list[bytes]:
    return [
        write_record(record).encode()
        for record in (make_record(), make_record(tests=fail(FAILURE)))
    ]


def _read_npy(content: bytes) -> None:
    with _unpack(content, "a.npy") as folder:
        array = read_array(str(folder / "a.npy"))
    assert array.nbytes <= len(content)


def _make_npy() -> list[bytes]:
    source = np.random.default_rng(1)
    made: list[bytes] = []
    kinds = ("<f4", ">f8", "<f2", "<i8", ">u2", "|b1", "|i1", "V2")
    for kind, version in itertools.product(kinds, ((1, 0), (2, 0), (3, 0))):
        array = (
            np.frombuffer(source.bytes(96), kind).reshape(2, 3, -1)
            if kind != "|b1"
            else np.eye(3, dtype=bool)
        )
        for stored in (array, np.asfortranarray(array)):
            file = io.BytesIO()
            np.lib.format.write_array(file, stored, version)
            made.append(file.getvalue())
    return made


def _read_replay(content: bytes) -> None:
    """The files of a folder, one after the other."""
    with _unpack(content, *_FILES) as folder:
        read_failure(folder).run("reference")


_FILES = ("case.json", "operator.dml", "case.npz")


def _make_replays() -> list[bytes]:
    from tests.testing.test_replay import keep, make_case

    with tempfile.TemporaryDirectory() as name:
        folder = keep(make_case(), Path(name))
        whole = _BETWEEN.join((folder / file).read_bytes() for file in _FILES)
        described = json.loads((folder / "case.json").read_text())
        described |= {"tensors": {}, "within": {"y": 0.5}}
        spoilt = [json.dumps(described).encode(), *whole.split(_BETWEEN)[1:]]
        return [whole, _BETWEEN.join(spoilt)]


def _make_models() -> list[bytes]:
    from tests.onnx.mutate import SAMPLE, make_models

    return make_models(SAMPLE)


def _read_model(content: bytes) -> None:
    with _unpack(content, "model.onnx") as folder:
        dmlc.onnx.load(folder / "model.onnx")


def _mutate_model(content: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    from tests.onnx.mutate import mutate_model

    return mutate_model(content, others, source)


MUTATE: Mapping[str, Callable[[bytes, Sequence[bytes], random.Random], bytes]] = {
    "hostile onnx": _mutate_model
}
"""By kind: what changes a content, where that is not `mutate`."""

READERS: Mapping[str, tuple[Callable[[], list[bytes]], Callable[[bytes], object]]] = {
    "hostile dml": (lambda: _texts(".dml", ROOT / "examples"), _read_dml),
    "hostile ir": (lambda: [str(f).encode() for f in _functions()], _read_ir),
    "hostile kernels": (_make_kernels, _read_kernel),
    "hostile json": (_make_json, _read_json),
    "hostile pages": (lambda: _texts(".md", ROOT / "tests" / "data" / "pages")
                      + _texts(".rst", ROOT / "tests" / "data" / "pages"), _read_page),
    "hostile sizes": (lambda: [text.encode() for text in _SIZES], _read_size),
    "hostile manifests": (_make_manifests, _read_manifest),
    "hostile drivers": (lambda: [_DRIVER], _read_driver),
    "hostile records": (_make_records, _read_record),
    "hostile npy": (_make_npy, _read_npy),
    "hostile replays": (_make_replays, _read_replay),
    "hostile onnx": (_make_models, _read_model),
}  # fmt: skip
"""By kind: good contents, and what reads them."""


def look(kind: str, content: bytes, ran: Counter[str]) -> None:
    """Has a content read. Raises `Finding`."""
    _, read = READERS[kind]
    limit = max(find_peak(), find_resident() + MEMORY)
    begun, worked = time.monotonic(), time.process_time()
    before = signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _STOPPED)
    try:
        read(content)
        ran["taken"] += 1
    except DmlcError:
        ran["refused"] += 1
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if str(ROOT / "dmlc") in frame.filename]
        place = (own or frames)[-1]
        what = f"{type(error).__name__} in {Path(place.filename).name} {place.name}"
        raise Finding(f"{kind}: {what}", f"{what}: {error}\n{content[:3000]!r}") from error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    # A machine may have much else to do: what counts is the work, and whether it comes to an end.
    seconds = max(time.process_time() - worked, (time.monotonic() - begun) / _BUSY)
    if seconds > SECONDS:
        raise Finding(f"{kind}: slow", f"{seconds:.1f} s for {content[:3000]!r}")
    if find_peak() > limit:
        raise Finding(f"{kind}: memory", f"more than {MEMORY >> 30} GiB for {content[:3000]!r}")


class _SlowError(Exception):
    """A reader was stopped."""


def _stop(*_: object) -> None:
    raise _SlowError(f"more than {_STOPPED} s of work")


def find_peak() -> int:
    """The most bytes of memory that this process has had, ever: a process of a whole test suite
    has had more than a reader takes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def find_resident() -> int:
    """The bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def read_mutants(
    kind: str, seed: int, batches: int, ran: Counter[str], seconds: float = 1e9
) -> list[Finding]:
    """Has so many batches of mutants read, or as many as there is time for, and gives the first
    finding of each kind. The same seed makes the same."""
    source = random.Random(f"{kind} {seed}")
    good = READERS[kind][0]()
    found: dict[str, Finding] = {}
    end = time.monotonic() + seconds
    for _ in range(batches * MUTANTS):
        if time.monotonic() > end:
            break
        try:
            change = MUTATE.get(kind, mutate)
            look(kind, change(source.choice(good), good, source), ran)
        except Finding as finding:
            found.setdefault(finding.kind, finding)
    return list(found.values())
