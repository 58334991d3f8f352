"""The shader compiler's binding."""

from __future__ import annotations

import gc
import pathlib
import re
import subprocess
import threading
import uuid

import pytest

from dmlc.runtime import dxc, dxc_library
from dmlc.runtime.dxc import Constant, Resource, ResourceKind
from dmlc.runtime.dxc_library import (
    LIBRARY_VARIABLE,
    ComObject,
    Library,
    check,
    find_library,
    load_library,
)
from dmlc.shader_model import RegisterShifts
from dmlc.source import InternalError, UnavailableError, UnsupportedError
from tests.runtime import dxil
from tests.runtime.handmade_hlsl import F16, relu_grad, square_then_double

RELU = relu_grad().kernels[0].source


def test_dxil_is_valid_and_disassembles() -> None:
    shader = dxc.compile_dxil(RELU)
    assert shader.code[:4] == b"DXBC"
    assert shader.warnings == ()
    assert shader.is_signed == load_library().signs
    assert dxil.validate(shader.code) == ()
    text = dxil.disassemble(shader.code)
    assert "define void @main()" in text
    assert "NumThreads=(64,1,1)" in text


def test_a_damaged_shader_is_found_by_the_validator() -> None:
    code = bytearray(dxc.compile_dxil(RELU).code)
    code[-40] ^= 0xFF
    assert dxil.validate(bytes(code)) != ()


def test_what_is_no_shader_cannot_be_disassembled() -> None:
    with pytest.raises(InternalError, match=r"cannot disassemble|failed to disassemble"):
        dxil.disassemble(b"no shader at all")


def spirv_tool(tool: str, code: bytes, folder: pathlib.Path, *options: str) -> str:
    path = folder / "kernel.spv"
    path.write_bytes(code)
    return subprocess.run([tool, *options, path], check=True, capture_output=True, text=True).stdout


def test_spirv_is_valid(tmp_path: pathlib.Path) -> None:
    for program in (relu_grad(), relu_grad(F16), square_then_double()):
        for kernel in program.kernels:
            code = dxc.compile_spirv(kernel.source).code
            spirv_tool("spirv-val", code, tmp_path, "--target-env", "vulkan1.1")


def test_registers_go_to_the_bindings_asked_for(tmp_path: pathlib.Path) -> None:
    code = dxc.compile_spirv(RELU, shifts=RegisterShifts(3, 20, 50)).code
    text = spirv_tool("spirv-dis", code, tmp_path)
    for line in ("%X Binding 3", "%dY Binding 4", "%dX Binding 20", "%Arguments Binding 50"):
        assert f"OpDecorate {line}" in text


def test_shifts_make_room_for_many_registers() -> None:
    assert RegisterShifts.for_counts(2, 1) == RegisterShifts(0, 16, 32)
    assert RegisterShifts.for_counts(20, 17) == RegisterShifts(0, 20, 37)


def test_a_value_declared_precise_is_computed_as_written(tmp_path: pathlib.Path) -> None:
    formula = "X[i] * dY[i] / 3.0f"
    loose = RELU.replace("passes ? dY[i] : (float)0", formula)
    strict = loose.replace(f"dX[i] = {formula}", f"precise const float y = {formula}; dX[i] = y")
    assert "NoContraction" not in spirv_tool("spirv-dis", dxc.compile_spirv(loose).code, tmp_path)
    assert "NoContraction" in spirv_tool("spirv-dis", dxc.compile_spirv(strict).code, tmp_path)
    assert " fast " not in dxil.disassemble(dxc.compile_dxil(strict).code)
    assert "fdiv" in dxil.disassemble(dxc.compile_dxil(strict).code)


def test_reflection() -> None:
    code = dxc.compile_dxil(square_then_double().kernels[1].source).code
    structured = ResourceKind.STRUCTURED_BUFFER
    stored = ResourceKind.READ_WRITE_STRUCTURED_BUFFER
    reflection = dxc.reflect(code)
    assert reflection.group_size == (64, 1, 1)
    assert set(reflection.resources) == {
        Resource("Arguments", ResourceKind.CONSTANT_BUFFER, 0, 0, 0),
        Resource("S", structured, 0, 0, 4),
        Resource("A", structured, 1, 0, 4),
        Resource("B", stored, 0, 0, 4),
        Resource("C", stored, 1, 0, 4),
    }
    assert [r.register for r in reflection.resources] == ["b0", "t0", "t1", "u0", "u1"]
    assert reflection.constants == (
        Constant("Arguments", "factor", 0, 8, "uint64_t"),
        Constant("Arguments", "n", 8, 4, "dword"),
    )


def test_native_16_bit_types_are_asked_for_only_where_they_are_used() -> None:
    def demands_native_types(source: str) -> bool:
        text = dxil.disassemble(dxc.compile_dxil(source).code)
        (flags,) = re.findall(r"!\{i32 0, i64 (\d+), i32 4, ", text)
        return bool(int(flags) & 0x800000)  # UseNativeLowPrecision

    assert demands_native_types(relu_grad(F16).kernels[0].source)
    assert not demands_native_types(RELU)


def test_an_error_shows_the_line_of_the_source() -> None:
    broken = RELU.replace("dX[i] = passes", "dX[i] = absentee")
    line = next(k for k, text in enumerate(broken.splitlines(), 1) if "absentee" in text)
    for compile in (dxc.compile_dxil, dxc.compile_spirv):
        with pytest.raises(InternalError) as caught:
            compile(broken, name="relu_grad.hlsl")
        assert str(caught.value) == (
            "DXC refuses the HLSL of relu_grad.hlsl\n"
            f"relu_grad.hlsl:{line}:17: use of undeclared identifier 'absentee'\n"
            f"   {line} |         dX[i] = absentee ? dY[i] : (float)0;\n"
            "      |                 ^"
        )


def test_an_error_without_a_place_is_shown_as_it_is() -> None:
    with pytest.raises(InternalError, match="missing entry point definition"):
        dxc.compile_dxil(RELU, "another")


def test_a_warning_shows_the_line_of_the_source() -> None:
    source = RELU.replace("if (i < n)", "uint64_t wide = i; dX[wide] = 0; if (i < n)")
    for shader in (
        dxc.compile_dxil(source, name="k.hlsl"),
        dxc.compile_spirv(source, name="k.hlsl"),
    ):
        (warning,) = shader.warnings
        first, shown, caret = warning.splitlines()
        assert first.endswith("possible loss of data [-Wconversion]")
        assert "uint64_t wide = i; dX[wide] = 0;" in shown
        assert shown[caret.index("^") :].startswith("wide] = 0;")


def test_too_much_group_shared_memory_is_refused_by_the_compiler() -> None:
    source = RELU.replace("[numthreads", "groupshared float s[8448];\n[numthreads").replace(
        "dX[i] = passes ? dY[i] : (float)0;",
        "s[lane * 132] = dY[i]; GroupMemoryBarrier(); dX[i] = s[lane * 131];",
    )
    with pytest.raises(InternalError, match="Total Thread Group Shared Memory"):
        dxc.compile_dxil(source)


@pytest.mark.parametrize("model", ["6.0", "6.2", "6.6", "6.8"])
def test_shader_models(model: str) -> None:
    assert dxil.validate(dxc.compile_dxil(RELU, shader_model=model).code) == ()


@pytest.mark.parametrize("model", ["5.1", "6.9", "7.0", "6_2", "six"])
def test_an_unknown_shader_model_is_refused(model: str) -> None:
    with pytest.raises(UnsupportedError, match=f"unknown shader model '{model}'"):
        dxc.compile_spirv(RELU, shader_model=model)


def test_threads_compile_at_the_same_time() -> None:
    codes: list[bytes] = []

    def work() -> None:
        codes.extend(dxc.compile_spirv(RELU).code for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(codes) == 20
    assert len(set(codes)) == 1


def test_every_object_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made and released: the library's objects and those that its functions give."""
    alive: set[int] = set()
    made, released = [0], ComObject.release
    initialise = ComObject.__init__

    def note(self: ComObject, address: int) -> None:
        initialise(self, address)
        made[0] += 1
        alive.add(id(self))

    def forget(self: ComObject) -> None:
        released(self)
        alive.discard(id(self))

    monkeypatch.setattr(ComObject, "__init__", note)
    monkeypatch.setattr(ComObject, "release", forget)
    code = dxc.compile_dxil(RELU).code
    dxil.disassemble(code)
    dxc.reflect(code)
    dxil.validate(code)
    with pytest.raises(InternalError):
        dxc.compile_spirv("nonsense")
    gc.collect()
    assert made[0] >= 15
    assert alive == set()


def test_an_object_is_not_used_after_its_release() -> None:
    with load_library().create(
        uuid.UUID("228b4687-5a6a-4730-900c-9702b2203f54"),
        uuid.UUID("73e22d93-e6ce-47f3-b5bf-f0664f39c1b0"),
    ) as compiler:
        pass
    compiler.release()
    with pytest.raises(InternalError, match="after its release"):
        compiler.call(3)


def test_failures_of_the_library_are_internal() -> None:
    library = load_library()
    with pytest.raises(InternalError, match="failed to make an object of class"):
        library.create(uuid.uuid4(), uuid.uuid4())
    with pytest.raises(InternalError, match="failed to count: 0x80004005"):
        check(-2147467259, "count")


# Where the library is -------------------------------------------------------------------------


def test_a_named_library_is_taken(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = find_library()
    monkeypatch.setenv(LIBRARY_VARIABLE, str(usual))
    assert find_library() == usual
    monkeypatch.setenv(LIBRARY_VARIABLE, str(usual.parent))
    assert find_library() == usual
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        find_library()
    assert f"no DXC library at {tmp_path}, which the environment variable" in str(caught.value)


def test_a_library_beside_the_program_is_found(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bin", "lib"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "dxc"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    monkeypatch.setattr(dxc_library.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UnavailableError) as caught:
        find_library()
    assert "the DirectX shader compiler (DXC) is not installed" in str(caught.value)
    assert "pip install dmlc[vulkan]" in str(caught.value)
    library = tmp_path / "lib" / "libdxcompiler.so"
    library.write_bytes(b"")
    assert find_library() == library


def test_a_file_that_is_no_library_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "libdxcompiler.so"
    file.write_text("no library")
    with pytest.raises(UnavailableError, match="cannot be loaded as the DXC library"):
        Library(file)


def test_a_library_without_the_compiler_is_refused() -> None:
    with pytest.raises(UnavailableError, match="cannot be loaded as the DXC library"):
        Library(pathlib.Path("libc.so.6"))


def test_on_windows_the_signing_library_is_loaded_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    class Loaded:
        DxcCreateInstance = None

        def __init__(self, path: str) -> None:
            loaded.append(pathlib.Path(path).name)

    (tmp_path / "dxil.dll").write_bytes(b"")
    monkeypatch.setattr(dxc_library.sys, "platform", "win32")
    monkeypatch.setattr(dxc_library.ctypes, "CDLL", Loaded)
    assert Library(tmp_path / "dxcompiler.dll").signs
    assert loaded == ["dxil.dll", "dxcompiler.dll"]
    (tmp_path / "dxil.dll").unlink()
    assert not Library(tmp_path / "dxcompiler.dll").signs
