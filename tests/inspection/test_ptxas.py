"""NVIDIA's machine code from recorded listings, and how its compiler is called: programs that give
the recorded texts stand in for clang, ptxas and nvdisasm, which no test installs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import dmlc
from dmlc.inspection import ptxas
from dmlc.inspection.listing import InstructionClass
from dmlc.inspection.machine import MachineKernel
from dmlc.inspection.nvidia import read_listing
from dmlc.inspection.turns import weigh_stretches
from dmlc.kernel.steps import count_steps
from dmlc.pipeline import make_kernels
from dmlc.source import DmlcError, InternalError, UnavailableError, UnknownNameError

RECORDED = Path(__file__).resolve().parents[1] / "data" / "inspection"
SIZES = (4096, 4096)


def record(name: str, part: str) -> str:
    return (RECORDED / f"{name}.sm_90.{part}").read_text("utf-8")


def read(name: str) -> MachineKernel:
    return ptxas.read_kernel(record(name, "ptxas"), record(name, "sass"), "sm_90")


def test_a_recorded_kernel() -> None:
    kernel = read("relu_grad")
    assert (kernel.registers, kernel.spilled_registers, kernel.scratch_bytes) == (20, 0, 0)
    assert (kernel.wave, kernel.waves, kernel.uniform_registers) == (32, None, None)
    # Without what fills it up behind the end.
    assert len(kernel.listing.instructions) == 63
    assert kernel.listing.count_widths(InstructionClass.LOAD) == {4: 8}
    assert kernel.listing.count_widths(InstructionClass.STORE) == {4: 4}
    whole = kernel.listing.find_stretches()
    assert whole.loops == []
    # Two operands are asked for, then compared: no third load before the first two are used.
    assert whole.find_flight() == (8, 2)


def test_loops_of_a_recorded_kernel_are_those_of_ours() -> None:
    kernel = read("sum")
    assert kernel.shared_bytes == 1024
    function = dmlc.operator("directml.REDUCE").bind(
        {"InputTensor": dmlc.TensorDesc("FLOAT32", (1 << 28,))},
        attributes={"Function": "SUM", "Axes": [0]},
    )
    _, kernels = make_kernels(function, "opencl", "gpu")
    steps = count_steps(kernels[0])
    assert steps is not None
    whole, times = weigh_stretches(steps.body, kernel.listing)
    assert times is not None
    # Of a lane's 64 turns four are one; the turns that combine lanes are unrolled. Vectors of
    # OpenCL need not be aligned, so that each is four loads.
    assert [(len(s.instructions), times[s]) for s in whole.walk()] == [(92, 1), (135, 16)]
    assert [s.find_flight() for s in whole.walk()] == [(0, 0), (72, 18)]


@pytest.mark.parametrize(
    ("line", "kind", "size"),
    [
        ("LDG.E.128.CONSTANT R4, desc[UR8][R2.64]", InstructionClass.LOAD, 16),
        ("@!P0 LDG.E.U16 R4, desc[UR8][R2.64]", InstructionClass.LOAD, 2),
        ("STG.E.64 desc[UR8][R2.64], R4", InstructionClass.STORE, 8),
        ("LDS R3, [R11+UR4+0x200]", InstructionClass.SHARED, 0),
        ("LDL.128 R4, [R1+0x10]", InstructionClass.SPILL, 16),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", InstructionClass.BARRIER, 0),
        ("LDC.64 R2, c[0x0][0x220]", InstructionClass.OTHER, 0),
        ("FADD R0, R11, R0", InstructionClass.OTHER, 0),
        ("FFMA R0, R11.reuse, R4, R0", InstructionClass.FMA, 0),
        ("HFMA2.MMA R21, -RZ, RZ, 0, 0", InstructionClass.OTHER, 0),
    ],
)
def test_instructions_fall_into_classes(line: str, kind: InstructionClass, size: int) -> None:
    (found,) = read_listing(f"        /*0010*/                   {line} ;\n").instructions
    assert (found.kind, found.bytes) == (kind, size)


def flight(*lines: str) -> tuple[int, int]:
    text = "".join(f"        /*0010*/                   {line} ;\n" for line in lines)
    return read_listing(text).find_stretches().find_flight()


def test_a_load_is_under_way_until_its_register_is_used() -> None:
    wide, narrow = "LDG.E.128 R4, desc[UR8][R2.64]", "LDG.E R12, desc[UR8][R12.64]"
    assert flight(wide, narrow, "FADD R0, R0, R12") == (20, 2)
    assert flight(wide, "FADD R0, R0, R7", narrow) == (16, 1)
    assert flight(narrow, "FADD R0, R0, R7", wide) == (20, 2)


def test_routines_behind_a_kernel_are_no_part_of_it() -> None:
    text = record("relu_grad", "sass")
    routine = "$__internal_0_$__cuda_sm20_div:\n        /*0900*/                   RET.REL R2 ;\n"
    longer = text.replace("\n.L_x_4:\n", f"\n.L_x_4:\n{routine}", 1)
    assert longer != text
    # All but the two instructions after the place.
    assert len(read_listing(longer).instructions) == 61


# Tools ------------------------------------------------------------------------------------------


def write_tool(folder: Path, name: str, lines: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{lines}\n", "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of stand-ins, the only one on the PATH but for those of the system's programs."""
    binary = tmp_path / "tree" / "bin"
    write_tool(binary, "clang", f'echo "$@" > {tmp_path}/clang; for a; do last=$a; done; exit 0')
    write_tool(
        binary,
        "ptxas",
        "if [ $1 = --help ]; then echo \"'sm_75','sm_90'\"; exit; fi\n"
        f'echo "$@" > {tmp_path}/ptxas; cat {RECORDED}/relu_grad.sm_90.ptxas >&2',
    )
    write_tool(binary, "nvdisasm", f"cat {RECORDED}/relu_grad.sm_90.sass")
    library = tmp_path / "clc" / "nvptx64--nvidiacl.bc"
    library.parent.mkdir()
    library.touch()
    monkeypatch.setenv("PATH", f"{binary}:/usr/bin:/bin")
    monkeypatch.setattr(ptxas.importlib.util, "find_spec", lambda _: None)
    return binary


def bind(rows: int) -> dmlc.ir.Function:
    tensors = dict.fromkeys(
        ("InputTensor", "InputGradientTensor"), dmlc.TensorDesc("FLOAT32", (rows, 4096))
    )
    return dmlc.operator("directml.ACTIVATION_RELU_GRAD").bind(tensors)


def test_opencl_goes_through_clang_to_ptxas(tools: Path, tmp_path: Path) -> None:
    found = dmlc.inspect(bind(4096), ["sm_90"])
    (kernel,) = found.kernels
    (compiled,) = kernel.compiled
    assert (compiled.gpu, compiled.registers, compiled.instructions) == ("sm_90", 20, 63)
    assert compiled.instructions_per_output == pytest.approx(63 / 16)
    assert compiled.bytes_in_flight == 8
    called = (tmp_path / "clang").read_text("utf-8").split()
    # Old versions of clang do not know the newest GPUs; ptxas takes their PTX for them.
    assert "-march=sm_80" in called
    assert str(tmp_path / "clc" / "nvptx64--nvidiacl.bc") in called
    # Halves are stored by an instruction, and not by libclc's own arithmetic.
    assert {"-Dvstore_half_rte(a,", "-Dvstore_half4_rte(a,"} < {*called}
    assert "-arch=sm_90" in (tmp_path / "ptxas").read_text("utf-8").split()


def test_gpus_must_be_known_to_ptxas(tools: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"'sm_12'[^$]*compiles for sm_75, sm_90"):
        dmlc.inspect(bind(4096), "sm_12")


def test_missing_tools_are_named(tools: Path) -> None:
    (tools / "nvdisasm").unlink()
    with pytest.raises(UnavailableError, match=r"NVIDIA's nvdisasm [^$]*pip install dmlc\[inspect"):
        dmlc.inspect(bind(4096), "sm_90")
    (tools / "ptxas").unlink()
    with pytest.raises(UnavailableError, match="NVIDIA's ptxas and nvdisasm"):
        dmlc.inspect(bind(4096), "sm_90")


def test_a_failing_tool_is_quoted(tools: Path) -> None:
    write_tool(tools, "nvdisasm", "echo no such cubin >&2; exit 1")
    with pytest.raises(InternalError, match=r"nvdisasm could not list[^$]*no such cubin"):
        ptxas.compile_kernels(dmlc.compile(bind(17), "opencl", "gpu").kernels, "sm_75")


def test_vendors_are_not_mixed() -> None:
    with pytest.raises(DmlcError, match=r"one after the other[^$]*sm_90 run OpenCL C"):
        dmlc.inspect(bind(4096), ["gfx1100", "sm_90"])


def test_names_of_gpus() -> None:
    assert ptxas.is_gpu("sm_90a")
    assert not ptxas.is_gpu("gfx1100")
