"""Which device a selector means."""

from __future__ import annotations

import dataclasses
import re

import pytest

from dmlc.runtime.opencl.device import Device, DeviceKind, Memory, choose
from dmlc.source import DmlcError, UnavailableError


def make(index: int, name: str, kind: DeviceKind, platform: str, platform_index: int) -> Device:
    return Device(
        index=index, name=name, platform=platform, platform_index=platform_index, kind=kind,
        version="OpenCL 3.0", compute_units=2, memory_size=1 << 30, max_allocation=1 << 28,
        memory=Memory.SHARED, float64=True,
    )  # fmt: skip


CPU = make(0, "pthread-haswell", DeviceKind.CPU, "PoCL", 0)
OTHER = make(1, "Stick 5", DeviceKind.OTHER, "Vendor A", 1)
GPU = make(2, "Radiant 9000", DeviceKind.GPU, "Vendor A", 1)
GPU2 = make(3, "Radiant 9500", DeviceKind.GPU, "Vendor A", 1)
ALL = (CPU, OTHER, GPU, GPU2)


@pytest.mark.parametrize(
    ("selector", "context", "expected"),
    [
        (None, "", GPU),
        ("opencl", "", GPU),
        ("opencl:0", "", CPU),
        ("opencl:3", "", GPU2),
        ("opencl:9500", "", GPU2),
        ("opencl:radiant 95", "", GPU2),
        ("opencl:pthread", "1", CPU),
        ("RADIANT", "", GPU),
        ("opencl", "0", CPU),
        ("opencl", "1", OTHER),
        ("opencl", "1:1", GPU),
        ("opencl", "vendor:9500", GPU2),
        (None, ":2", GPU),
        (None, "pocl:", CPU),
    ],
)
def test_choice(selector: str | None, context: str, expected: Device) -> None:
    assert choose(ALL, selector, {"PYOPENCL_CTX": context}) is expected


def test_the_first_cpu_where_there_is_no_gpu_and_the_first_device_where_there_is_neither() -> None:
    assert choose((OTHER, CPU), None, {}) is CPU
    assert choose((OTHER,), None, {}) is OTHER


def test_no_device_says_how_to_get_one() -> None:
    with pytest.raises(UnavailableError) as caught:
        choose((), "opencl", {})
    assert "no OpenCL device" in str(caught.value)
    assert "apt-get install pocl-opencl-icd" in str(caught.value)


@pytest.mark.parametrize(
    ("selector", "context", "message"),
    [
        ("opencl:17", "", "no OpenCL device has the number 17"),
        ("opencl:voodoo", "", "no OpenCL device matches 'voodoo'"),
        ("opencl", "7", "no OpenCL device matches PYOPENCL_CTX='7'"),
        ("opencl", "0:1", "no OpenCL device matches PYOPENCL_CTX='0:1'"),
    ],
)
def test_no_match_lists_the_devices(selector: str, context: str, message: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        choose(ALL, selector, {"PYOPENCL_CTX": context})
    assert message in str(caught.value)
    assert re.search(
        r"opencl:2 is Radiant 9000|1 is Vendor A, with Radiant 9000", str(caught.value)
    )


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(DmlcError, match="names nothing after the colon"):
        choose(ALL, "opencl: ", {})


def test_a_device_is_a_value() -> None:
    assert dataclasses.replace(CPU) == CPU
    assert str(GPU) == "Radiant 9000 (Vendor A)"
