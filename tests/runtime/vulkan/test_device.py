"""Which Vulkan device a selector means."""

from __future__ import annotations

import dataclasses

import pytest

from dmlc.runtime.floats import FloatPromises
from dmlc.runtime.vulkan.device import DeviceType, FloatControls, VulkanDevice, choose_device
from dmlc.source import DmlcError, UnavailableError
from tests.runtime.vulkan.test_plan import DEVICE


def make(index: int, name: str, type: DeviceType) -> VulkanDevice:
    return dataclasses.replace(DEVICE, index=index, name=name, type=type)


CPU = make(0, "llvmpipe (LLVM 15)", DeviceType.CPU)
INTEGRATED = make(1, "Modest 10", DeviceType.INTEGRATED_GPU)
DISCRETE = make(2, "Radiant 9000", DeviceType.DISCRETE_GPU)
SECOND = make(3, "Radiant 9500", DeviceType.DISCRETE_GPU)
OTHER = make(4, "Oddity", DeviceType.OTHER)
ALL = (CPU, INTEGRATED, DISCRETE, SECOND, OTHER)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, DISCRETE),
        ("vulkan", DISCRETE),
        ("vulkan:0", CPU),
        ("vulkan:3", SECOND),
        ("vulkan:9500", SECOND),
        ("vulkan:LLVMPIPE", CPU),
        ("vulkan:integrated", INTEGRATED),
        ("modest", INTEGRATED),
        ("4", OTHER),
    ],
)
def test_choice(selector: str | None, expected: VulkanDevice) -> None:
    assert choose_device(ALL, selector) is expected


def test_the_order_of_preference() -> None:
    assert choose_device((OTHER, CPU, INTEGRATED), None) is INTEGRATED
    assert choose_device((OTHER, CPU), None) is CPU
    assert choose_device((OTHER,), None) is OTHER


def test_no_device_says_how_to_get_one() -> None:
    with pytest.raises(UnavailableError) as caught:
        choose_device((), "vulkan")
    assert "no Vulkan device was found" in str(caught.value)
    assert "apt-get install libvulkan1 mesa-vulkan-drivers" in str(caught.value)


@pytest.mark.parametrize("selector", ["vulkan:17", "vulkan:voodoo"])
def test_no_match_lists_the_devices(selector: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        choose_device((CPU, SECOND), selector)
    said = {"17": "has the number 17", "voodoo": "matches 'voodoo'"}[selector[7:]]
    assert f"no Vulkan device {said}" in str(caught.value)
    assert "vulkan:0 is llvmpipe (LLVM 15) (CPU, radiant 1.0); vulkan:3 is Radiant 9500" in str(
        caught.value
    )


def test_shared_memory() -> None:
    assert [d.type.shares_memory for d in ALL] == [True, True, False, False, False]


def test_nothing_after_the_colon() -> None:
    with pytest.raises(DmlcError, match="the device 'vulkan:' names nothing after the colon"):
        choose_device(ALL, "vulkan:")


@pytest.mark.parametrize(
    ("listed", "independence", "kept"),
    [
        ((16, 32, 64), "ALL", (16, 32, 64)),
        ((16, 64), "ALL", (16, 64)),
        ((16, 64), "32_BIT_ONLY", (16, 64)),
        ((16, 32), "32_BIT_ONLY", (32,)),
        ((16, 64), "NONE", ()),
        ((16, 32, 64), "NONE", (16, 32, 64)),
        ((), "NONE", ()),
    ],
)
def test_what_may_be_asked_of_denormals(
    listed: tuple[int, ...], independence: str, kept: tuple[int, ...]
) -> None:
    """Where a device treats widths alike, all of them are asked to be kept, or none."""
    controls = FloatControls((32,), listed, (), independence)
    assert controls.promises == FloatPromises((32,), kept)


def test_a_device_says_what_it_promises_of_floats() -> None:
    controls = FloatControls((16, 32, 64), (16, 64), (32,), "32_BIT_ONLY")
    facts = dataclasses.replace(DEVICE, float_controls=controls).facts
    assert facts[-4:] == (
        "NaN and signed zeros kept of 16, 32 and 64 bits",
        "denormals kept of 16 and 64 bits",
        "division within 2.5 ulp, square roots 4.5",
        "denormals of 32 bits can be flushed to zero",
    )
    assert "NaN and signed zeros not promised" in DEVICE.facts
