"""Quick builds of kernels: that they make what plain ones do."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyopencl as cl
import pytest

from dmlc.runtime import opencl
from tests import quick_builds

GOLDEN = Path(__file__).parent / "golden"
BITCODE = b"BC\xc0\xde"
"""Where LLVM's part of PoCL's binaries starts; before it is a hash of the source."""
TEMPORARY_NAME = 16
"""So many bytes of it name the file it was made from, which has another name each time."""


@pytest.fixture(scope="module")
def context() -> cl.Context:
    opencl.find_device("opencl")
    return cl.Context(cl.get_platforms()[0].get_devices()[:1])


def differing_bytes(left: cl.Program, right: cl.Program) -> int:
    (a,), (b,) = (p.get_info(cl.program_info.BINARIES) for p in (left, right))
    a, b = a[a.index(BITCODE) :], b[b.index(BITCODE) :]
    return sum(x != y for x, y in zip(a, b, strict=False)) + abs(len(a) - len(b))


@pytest.mark.parametrize("name", ["batch_norm_training_grad_f16", "gelu", "long_rows.gpu"])
def test_quick_builds_make_what_plain_ones_do(name: str, context: cl.Context) -> None:
    source = (GOLDEN / f"{name}.cl").read_text()
    # Twice, and nothing from PoCL's cache: what it makes of functions that a process had not used
    # before has them in another order.
    for _ in range(2):
        new = f"{source}\nconstant int new_{uuid.uuid4().hex} = 1;\n"
        plain = cl.Program(context, new).build(["-w"])
        quick = quick_builds.build(context, new, context.devices)
        assert quick is not None
    assert differing_bytes(plain, quick) <= TEMPORARY_NAME


def test_another_kernel_is_told_apart(context: cl.Context) -> None:
    source = (GOLDEN / "gelu.cl").read_text()
    quick = quick_builds.build(context, source, context.devices)
    other = quick_builds.build(context, source.replace("1.0f", "2.0f"), context.devices)
    assert quick is not None
    assert other is not None
    assert differing_bytes(quick, other) > TEMPORARY_NAME


def test_what_the_driver_refuses_is_built_plainly(context: cl.Context) -> None:
    assert quick_builds.build(context, "kernel void f() { sin(; }", context.devices) is None


def test_without_the_header_builds_are_plain(
    context: cl.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_builds.read_header.cache_clear()
    monkeypatch.setattr(quick_builds, "HEADERS", tmp_path)
    assert quick_builds.build(context, "kernel void f() {}", context.devices) is None
    for name, text in (("opencl-c-base.h", ""), ("opencl-c.h", "float sin(float);\n#endif\n")):
        (tmp_path / name).write_text(text)
    quick_builds.read_header.cache_clear()
    assert quick_builds.declare("sin") == ""
    quick_builds.read_header.cache_clear()
