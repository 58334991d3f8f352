"""Vulkan set up and taken down, and what is said where that fails."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from dmlc.runtime.vulkan import api as vulkan_api
from dmlc.runtime.vulkan import context as vulkan_context
from dmlc.runtime.vulkan.api import VulkanError, load_vulkan
from dmlc.runtime.vulkan.context import (
    Context,
    Instance,
    Messages,
    Validation,
    open_context,
    reopen_context,
    set_validation,
)
from dmlc.runtime.vulkan.executable import Executable, Options, session_of
from dmlc.runtime.vulkan.memory import Allocator, Use
from dmlc.source import DmlcError, InternalError, UnavailableError
from tests.runtime.handmade_hlsl import relu_grad, square_then_double


@pytest.mark.parametrize("options", [Options(), Options(staged=True), Options(timed=True)])
def test_everything_that_was_made_is_given_back(options: Options) -> None:
    """The validation layer names what is left when a device is destroyed."""
    instance = Instance(Validation.CALLS)
    context = Context(instance, instance.devices[0])
    for program in (relu_grad(), square_then_double()):
        executable = Executable(program, context, options)
        for count in (10, 1 << 20):
            arrays = {t.name: np.ones(count, np.float32) for t in program.inputs}
            executable(arrays)
            executable.bind(arrays)()
            executable.bind(arrays).time_kernels(3)
    del executable
    gc.collect()
    session_of(context).pipelines.clear()
    context.close()
    instance.close()
    assert instance.messages.take() == []


def test_what_is_left_is_named() -> None:
    instance = Instance(Validation.CALLS)
    context = Context(instance, instance.devices[0])
    executable = Executable(relu_grad(), context, Options())
    with pytest.raises(InternalError, match=r"(?s)closes a device.*has not been destroyed"):
        context.close()
    del executable
    instance.close()


def test_a_context_is_made_once_per_device_and_validation() -> None:
    context = open_context()
    assert open_context("vulkan") is context
    assert reopen_context(context) is context
    assert set_validation(Validation.NONE) is Validation.CALLS
    try:
        plain = open_context()
        assert plain is not context
        assert plain.instance.validation is Validation.NONE
        assert reopen_context(context) is context
    finally:
        assert set_validation(Validation.CALLS) is Validation.NONE


def run_with(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = (
        "from dmlc.runtime import vulkan; print(vulkan.find_device('vulkan:llvmpipe').type.value)"
    )
    root = pathlib.Path(__file__).parents[3]
    plain = {k: v for k, v in os.environ.items() if not k.startswith("VK_")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=plain | environment,
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_is_printed_without_a_display() -> None:
    plain = {k: v for k, v in os.environ.items() if k not in ("XDG_RUNTIME_DIR", "DISPLAY")}
    done = subprocess.run(
        [sys.executable, "-c", "from dmlc.runtime import vulkan; vulkan.devices()"],
        env=plain,
        cwd=pathlib.Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert "XDG_RUNTIME_DIR" not in done.stderr


def test_a_driver_that_is_missing_is_named() -> None:
    done = run_with({"VK_ICD_FILENAMES": "/missing/driver.json"})
    assert done.returncode == 1
    assert "UnavailableError: error: Vulkan could not be set up" in done.stderr
    assert "/missing/driver.json" in done.stderr


def test_a_driver_that_fails_is_named_even_beside_one_that_works(tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "broken.json"
    driver = {"library_path": str(tmp_path / "broken.so"), "api_version": "1.3.0"}
    broken.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": driver}))
    working = sorted(pathlib.Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))
    files = ":".join(str(f) for f in (broken, *working))
    done = run_with({"VK_ICD_FILENAMES": files})
    assert done.returncode == 1
    assert "UnavailableError: error: Vulkan could not be set up as asked" in done.stderr
    assert f"{tmp_path / 'broken.so'}: cannot open shared object file" in done.stderr
    done = run_with({"VK_ICD_FILENAMES": ":".join(map(str, working))})
    assert (done.returncode, done.stdout) == (0, "CPU\n")


def test_a_layer_that_is_missing_is_named() -> None:
    done = run_with({"VK_INSTANCE_LAYERS": "VK_LAYER_nobody"})
    assert done.returncode == 1
    assert "there is no Vulkan layer VK_LAYER_nobody" in done.stderr
    assert "VK_LAYER_KHRONOS_validation" in done.stderr
    done = run_with({"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation"})
    assert (done.returncode, done.stdout) == (0, "CPU\n")


def test_a_missing_layer_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulkan_context, "VALIDATION_LAYER", "VK_LAYER_nobody_missing")
    with pytest.raises(UnavailableError) as caught:
        Instance(Validation.CALLS)
    assert "the Vulkan validation layer is not installed" in str(caught.value)
    assert "apt-get install vulkan-validationlayers" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "message", "cure"),
    [
        (
            ModuleNotFoundError("No module named 'vulkan'"),
            "the Python package 'vulkan' is not installed",
            "pip install dmlc[vulkan]",
        ),
        (
            OSError("Cannot find Vulkan SDK version"),
            "no Vulkan loader was found",
            "apt-get install libvulkan1 mesa-vulkan-drivers",
        ),
    ],
)
def test_missing_software_says_how_to_get_it(
    error: Exception, message: str, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(vulkan_api.importlib, "import_module", fail)
    load_vulkan.cache_clear()
    with pytest.raises(UnavailableError) as caught:
        load_vulkan()
    monkeypatch.setattr(vulkan_api.importlib, "import_module", importlib.import_module)
    assert message in str(caught.value)
    assert cure in str(caught.value)


def test_messages_are_raised_once() -> None:
    messages = Messages()
    messages.raise_if_any("rests")
    messages.add("first")
    messages.add("second")
    with pytest.raises(InternalError) as caught:
        messages.raise_if_any("works")
    assert str(caught.value) == "Vulkan objects while dmlc works:\n  first\n  second"
    messages.raise_if_any("rests")


def test_a_failing_function_is_named_with_what_was_said() -> None:
    context = open_context()

    def fail() -> None:
        with context.doing("works"):
            context.instance.messages.add("why")
            raise VulkanError("f", "VK_ERROR_X")

    with pytest.raises(InternalError) as caught:
        fail()
    assert str(caught.value) == "Vulkan failed while dmlc works: f gave VK_ERROR_X\n  why"


def test_errors_and_functions_have_names() -> None:
    api = load_vulkan()
    assert str(api.error("f", -4)) == "f gave VK_ERROR_DEVICE_LOST"
    assert str(api.error("f", -77)) == "f gave the result -77"
    with pytest.raises(InternalError, match="no function vkNobodyKnows"):
        api.extension_function(open_context().handle, "vkNobodyKnows")


def test_too_little_memory_is_the_users_to_know() -> None:
    context = open_context()
    with contextlib.ExitStack() as stack, pytest.raises(DmlcError, match="bytes of memory left"):
        Allocator(context).allocate(stack, 1 << 50, Use.KERNELS)
    # So large a buffer is against the rules as well, and a newer layer says so.
    context.instance.messages.take()
