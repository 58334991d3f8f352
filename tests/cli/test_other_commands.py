"""`ops`, `show`, `check`, `fmt`, `ir`, `compile` and `devices`."""

from __future__ import annotations

import json
import re
import stat
import warnings
from pathlib import Path

import numpy as np
import pytest

import dmlc as package
from dmlc import compiler, ir, known_answers
from dmlc.cli import devices_command
from dmlc.kernel.json import kernel_from_json
from dmlc.kernel.parse import parse_kernel
from dmlc.pipeline import list_passes, make_kernels
from dmlc.runtime import opencl, vulkan, wgpu
from dmlc.runtime.floats import Division, FloatPromises
from dmlc.runtime.opencl.device import Device, DeviceKind, Memory
from dmlc.runtime.spirv import read_module
from dmlc.runtime.vulkan import VulkanDevice
from dmlc.runtime.wgpu import WgpuDevice
from dmlc.source import UnavailableError
from dmlc.transform.rewrite import PASSES
from tests.cli.conftest import Dmlc

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
GRAD = "directml.ACTIVATION_RELU_GRAD"
NEGATE = """operator NEGATE {
    tensors {
        | Tensor | Kind   | Ranks | Types |
        | ------ | ------ | ----- | ----- |
        | x      | Input  | 2, 4  | f32   |
        | y      | Output | 2, 4  | f32   |
    }
    constraints {
        x and y must have the same Sizes.
    }
    compute {
        y = -x
    }
}
"""
UNTIDY = NEGATE.replace("        | x ", "  |x").replace("y = -x", "y=- x")


def write(text: str, name: str = "a.dml") -> Path:
    path = Path(name)
    path.write_text(text, "utf-8")
    return path


# ops and show ---------------------------------------------------------------------------------


def test_ops_lists_the_library(dmlc: Dmlc) -> None:
    found = dmlc("ops")
    lines = found.out.splitlines()
    assert found.err.split() == ["name", "family", "types", "ranks", "gradient"]
    assert [line.split()[0] for line in lines] == list(package.operators())
    row = next(line for line in lines if line.startswith(f"{GRAD} "))
    assert "  directml  FLOAT32, FLOAT16" in row
    assert row.split()[-5:] == ["1", "to", "8", "of", "directml.ACTIVATION_RELU"]
    last = {line.split()[0]: line.split()[-1] for line in lines}
    assert last["directml.ACTIVATION_RELU"] == GRAD
    assert last["directml.PADDING"] == "derived"
    assert last["directml.DIAGONAL_MATRIX"] == "none"


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("relu", 10), ("onednn.relu*", 2), ("*relu_grad", 1), ("ReLUBackwar?", 0)],
)
def test_ops_by_pattern(pattern: str, count: int, dmlc: Dmlc) -> None:
    found = dmlc("ops", pattern)
    assert found.status == (0 if count else 1)
    assert len(found.out.splitlines()) == count
    assert found.err.startswith("name " if count else f"no operator matches '{pattern}'\n")


def test_ops_as_json(dmlc: Dmlc) -> None:
    assert json.loads(dmlc("ops", "onednn.ReLU", "--json").out)[0] == {
        "name": "onednn.ReLU",
        "family": "onednn",
        "types": ["FLOAT32", "FLOAT16", "BFLOAT16"],
        "ranks": list(range(1, 9)),
        "forward": None,
        "gradients": ["onednn.ReLUBackward"],
        "differentiable": True,
    }
    assert json.loads(dmlc("ops", "nothing", "--json").out) == []


def test_show(dmlc: Dmlc) -> None:
    found = dmlc("show", GRAD)
    for part in (f"// {GRAD}\n", "| InputTensor", "must have the same", "? dY : 0", 'example "'):
        assert part in found.out
    write(f"// not part of it\n{NEGATE}")
    assert dmlc("show", "a.dml").out == f"// NEGATE\n{NEGATE}"


def test_show_says_what_others_call_the_same(dmlc: Dmlc) -> None:
    names = "onednn.MatMul, onnx.Gemm, torch.matmul"
    assert f"// directml.GEMM\n// elsewhere: {names}\n" in dmlc("show", "directml.GEMM").out


# check and fmt --------------------------------------------------------------------------------


def test_check(dmlc: Dmlc) -> None:
    write(NEGATE)
    write("graph g[N](x: FLOAT32[N]) { output y = x + x }", "g.dml")
    found = dmlc("check", "a.dml", "g.dml")
    assert found.status == 0
    assert found.out == "a.dml: 1 operator, no mistakes\ng.dml: 1 graph, no mistakes\n"
    assert found.err == ""
    write("module m", "m.dml")
    assert dmlc("check", "m.dml").out == "m.dml: no operators, no mistakes\n"


def test_check_reports_every_file(dmlc: Dmlc) -> None:
    write(NEGATE.replace("-x", "-z"))
    write(NEGATE.replace("f32", "f31"), "b.dml")
    found = dmlc("check", "a.dml", "b.dml", "c.dml")
    assert found.status == 1
    assert found.out == ""
    assert "a.dml:12:14: error: unknown name 'z'" in found.err
    assert "b.dml:5:37: error: unknown data type 'f31'" in found.err
    assert "error: cannot read 'c.dml': " in found.err


BIND = ("--bind", "--tensor", "x=FLOAT32[4,6]")


def test_check_binds(dmlc: Dmlc) -> None:
    write(NEGATE)
    found = dmlc("check", "a.dml", *BIND)
    assert (found.status, found.err) == (0, "")
    assert found.out == "a.dml: NEGATE binds to 1 kernel, no mistakes\n"
    write(NEGATE + "graph g[N](x: FLOAT32[N, N]) { output y = NEGATE(x: x) + sum(x, axes: [1]) }")
    found = dmlc("check", "a.dml:g", "--bind", "--dim", "N=3000")
    assert found.out == "a.dml:g: g binds to 1 kernel, no mistakes\n"
    found = dmlc("check", "a.dml", *BIND)
    assert found.status == 1
    assert "defines 1 operator, 1 graph: say which, as in 'a.dml:g'" in found.err


def test_check_reports_what_does_not_bind(dmlc: Dmlc) -> None:
    write(NEGATE)
    found = dmlc("check", "a.dml", "--bind", "--tensor", "x=FLOAT32[4,6,5]")
    assert (found.status, found.out) == (1, "")
    assert "'x' takes 2 or 4 dimensions, and is given 3" in found.err
    write(NEGATE.replace("-x", "-z"))
    found = dmlc("check", "a.dml:NEGATE", *BIND, "--json")
    (mistake,) = json.loads(found.out)
    assert (found.status, mistake["message"]) == (1, "unknown name 'z'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.dml", "b.dml", "--bind"), "--bind takes one FILE, or one FILE:NAME"),
        (("a.dml", "--dim", "N=2"), "are what --bind binds with: give it too"),
    ],
)
def test_check_refuses_other_bindings(dmlc: Dmlc, arguments: tuple[str, ...], message: str) -> None:
    found = dmlc("check", *arguments)
    assert found.status == 2
    assert message in found.err


def test_check_as_json(dmlc: Dmlc) -> None:
    write(NEGATE.replace("-x", "-z"))
    found = dmlc("check", "a.dml", "c.dml", "--json")
    assert found.status == 1
    assert found.err == ""
    first, second = json.loads(found.out)
    assert first["message"] == "unknown name 'z'"
    assert (first["file"], first["line"], first["column"]) == ("a.dml", 12, 14)
    assert len(first["notes"]) == 1
    assert (second["file"], second["line"], second["column"]) == (None, None, None)


def test_fmt(dmlc: Dmlc) -> None:
    path = write(UNTIDY)
    path.chmod(0o640)
    assert dmlc("fmt", "--check", "a.dml").status == 1
    assert path.read_text("utf-8") == UNTIDY
    found = dmlc("fmt", "a.dml")
    assert (found.status, found.out, found.err) == (0, "a.dml: formatted\n", "")
    assert path.read_text("utf-8") == NEGATE
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    found = dmlc("fmt", "a.dml")
    assert (found.status, found.out) == (0, "")
    assert dmlc("fmt", "--check", "a.dml").status == 0


def test_fmt_follows_links(dmlc: Dmlc) -> None:
    Path("real").mkdir()
    path = write(UNTIDY, "real/a.dml")
    Path("link.dml").symlink_to(path)
    assert dmlc("fmt", "link.dml").status == 0
    assert Path("link.dml").is_symlink()
    assert path.read_text("utf-8") == NEGATE


def test_fmt_leaves_what_it_cannot_read(dmlc: Dmlc) -> None:
    write("operator {")
    write(UNTIDY, "b.dml")
    found = dmlc("fmt", "a.dml", "b.dml")
    assert found.status == 1
    assert found.err.startswith("a.dml:1:10: error: ")
    assert found.out == "b.dml: formatted\n"
    assert Path("a.dml").read_text("utf-8") == "operator {"


# ir and compile -------------------------------------------------------------------------------


def test_ir_reads_back(dmlc: Dmlc) -> None:
    function = package.operator(GRAD).bind()
    assert ir.parse(dmlc("ir", GRAD).out) == function
    assert ir.from_json(dmlc("ir", GRAD, "--json").out) == function


def test_ir_of_a_binding(dmlc: Dmlc) -> None:
    sizes = ("--tensor", "src=f16[2,3]", "--tensor", "diff_dst=f16[2,3]{1,2}")
    found = dmlc("ir", "onednn.ReLUBackward", *sizes, "--attr", "use_dst=false")
    assert found.out.startswith("func @ReLUBackward(%src: f16[2, 3], %diff_dst: f16[2, 3]{1, 2})")


def test_ir_after_passes(dmlc: Dmlc) -> None:
    write(NEGATE.replace("y = -x", "doubled = x + x\n        y = -doubled"))
    whole = dmlc("ir", "a.dml", "--tensor", "x=f32[2,3]").out
    assert "%doubled" in whole
    simple = dmlc("ir", "a.dml", "--tensor", "x=f32[2,3]", "--after", "simplify").out
    assert ir.parse(simple).name == "NEGATE"
    fused = dmlc("ir", "a.dml", "--tensor", "x=f32[2,3]", "--after", "fuse").out
    assert "%doubled:" not in fused
    assert fused.splitlines()[-1].startswith("// kernel 0: ")
    assert "reads 24 B, writes 24 B" in fused
    passes = dict(list_passes(ir.parse(whole)))
    for name, function in (*passes.items(), ("factor", passes[PASSES[-1]])):
        done = dmlc("ir", "a.dml", "--tensor", "x=f32[2,3]", "--after", name)
        assert done.out == f"{function}\n", name
    assert dmlc("ir", "a.dml", "--tensor", "x=f32[2,3]", "--after", "vectorize").status == 2
    given = ("ir", "a.dml", "--tensor", "x=f32[2,3]", "--after", "fuse", "--json")
    fusion = compiler.fusion_from_json(dmlc(*given).out)
    assert str(fusion.function) == fused.partition("\n//")[0]
    assert fusion == compiler.find_fusion(ir.parse(whole))
    kernel = dmlc("ir", "a.dml", "--tensor", "x=f32[2,3]", "--kernel", "--target", "hlsl").out
    (made,) = make_kernels(ir.parse(whole), "hlsl")[1]
    assert parse_kernel(kernel) == made
    shown = dmlc("ir", "a.dml", "--tensor", "x=f32[2,3]", "--kernel", "--target", "hlsl", "--json")
    assert [kernel_from_json(json.dumps(each)) for each in json.loads(shown.out)] == [made]


def test_ir_shows_the_order_of_a_reduction(dmlc: Dmlc) -> None:
    Path("s.dml").write_text("""operator TOTAL {
    tensors {
        | Tensor | Kind   | Dimensions | Ranks | Types   |
        | x      | Input  | { N }      | 1     | FLOAT32 |
        | y      | Output | { N }      | 1     | FLOAT32 |
    }
    compute {
        y[i] = sum[k : N where k <= i] (x[k])
    }
}""")
    given = ("ir", "s.dml", "--after", "fuse", "--profile", "gpu", "--tensor")
    long = dmlc(*given, "x=f32[100000]").out.splitlines()[-1]
    assert "; %y scans rows along i0: the points up to each element; " in long
    short = dmlc(*given, "x=f32[100]").out.splitlines()[-1]
    assert short.startswith("//   %y is no scan along r0: an element has 100 points or fewer")


def test_a_broken_constraint_is_quoted(dmlc: Dmlc) -> None:
    write(NEGATE)
    found = dmlc("ir", "a.dml", "--tensor", "x=f32[2,3]", "--tensor", "y=f32[3,2]")
    assert found.status == 1
    assert found.out == ""
    assert found.err.startswith(
        'a.dml:9:9: error: broken constraint: "x and y must have the same Sizes."'
    )


def test_compile_writes_files(dmlc: Dmlc) -> None:
    found = dmlc("compile", GRAD, "--target", "all", "-o", "out")
    suffixes = [".hlsl", ".cl", ".dxil", ".spv"]
    hlsl, cl, *compiled = [f"ACTIVATION_RELU_GRAD{suffix}" for suffix in suffixes]
    names = [hlsl, cl, "manifest.json", *compiled]
    assert found.out.splitlines() == [f"out/{name}" for name in names]
    assert sorted(p.name for p in Path("out").iterdir()) == sorted(names)
    manifest = json.loads(Path("out/manifest.json").read_text("utf-8"))
    assert [p["target"] for p in manifest["programs"]] == ["hlsl", "opencl"]
    dmlc("compile", GRAD, "--target", "all", "-o", "again")
    for name in names:
        assert Path("out", name).read_bytes() == Path("again", name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "widths"),
    [((), (32,)), (("--float-controls", "64,32"), (32,)), (("--float-controls", "none"), ())],
)
def test_compile_asks_of_floats_what_is_wanted(
    arguments: tuple[str, ...], widths: tuple[int, ...], dmlc: Dmlc
) -> None:
    dmlc("compile", GRAD, "--target", "hlsl", "-o", "out", *arguments)
    facts = read_module(Path("out/ACTIVATION_RELU_GRAD.spv").read_bytes())
    assert facts.float_modes == tuple(("SignedZeroInfNanPreserve", width) for width in widths)
    (kernel,) = json.loads(Path("out/manifest.json").read_text("utf-8"))["kernels"]
    asked = {"none": [], "64,32": [32, 64]}.get("".join(arguments[1:]), [16, 32, 64])
    assert kernel["float_controls"] == asked


def test_widths_that_no_float_has_are_refused(dmlc: Dmlc) -> None:
    found = dmlc("compile", GRAD, "--float-controls", "32,8")
    assert found.status == 2
    assert "expected 16, 32, 64 or none, found '32,8'" in found.err


@pytest.mark.parametrize("target", ["hlsl", "opencl"])
def test_compile_prints_sources(target: str, dmlc: Dmlc) -> None:
    program = package.compile(package.operator(GRAD).bind(), target)
    assert dmlc("compile", GRAD, "--target", target).out == program.kernels[0].source


def test_compile_for_a_profile(dmlc: Dmlc) -> None:
    program = package.compile(package.operator(GRAD).bind(), "opencl", "gpu")
    found = dmlc("compile", GRAD, "--target", "opencl", "--profile", "gpu")
    assert found.out == program.kernels[0].source


def test_compile_names_literals_and_what_opens_them(dmlc: Dmlc) -> None:
    def note(*given: str) -> str:
        found = dmlc("compile", *given, "--target", "opencl", "-o", "out")
        assert found.status == 0
        return found.err

    line = ("directml.ACTIVATION_LINEAR", "--attr", "Alpha=0.1")
    said = "note: attributes that are literals in the kernels: "
    assert note(*line, "--attr", "Beta=1") == (
        f"{said}Alpha = 0.1, Beta = 1; --open Alpha, --open Beta leave these open until they run\n"
    )
    assert note(*line, "--open", "Beta") == (
        f"{said}Alpha = 0.1; --open Alpha leaves it open until they run\n"
    )
    assert not note(*line[:1], "--open", "Alpha", "--open", "Beta")
    assert not note("directml.ACTIVATION_RELU")
    # What sizes depend on cannot be open.
    sizes = ("--tensor", "InputTensor=FLOAT32[4,2]", "--tensor", "OutputTensor=FLOAT32[1,2]")
    assert note("directml.REDUCE", *sizes, "--attr", "Axes=0", "--attr", "Function=SUM") == (
        f"{said}Function = SUM, AxisCount = 1, Axes = [0]\n"
    )


def test_compile_as_json(dmlc: Dmlc) -> None:
    program = package.compile(package.operator(GRAD).bind(), "opencl")
    found = dmlc("compile", GRAD, "--target", "opencl", "--json", "-o", "out")
    assert json.loads(found.out) == program.manifest()
    assert found.err.splitlines() == ["out/ACTIVATION_RELU_GRAD.cl", "out/manifest.json"]


def test_a_folder_that_cannot_be_written(dmlc: Dmlc) -> None:
    Path("file").write_text("", "utf-8")
    found = dmlc("compile", GRAD, "-o", "file/out")
    assert found.status == 1
    assert found.out == ""
    assert found.err.startswith("error: cannot write 'file/out': Not a directory [E0005]\n")


def test_derived_gradients_are_compiled(dmlc: Dmlc) -> None:
    found = dmlc("compile", f"{EXAMPLES / 'silu.dml'}:SILU_GRAD", "-o", "out")
    note = "note: attributes that are literals in the kernels: Slope = 1\n"
    assert (found.status, found.err) == (0, note)
    assert "sigmoid" in Path("out/SILU_GRAD.cl").read_text("utf-8")


FLAT = """operator FLOOR {
    tensors {
        | Tensor | Kind   | Types |
        | x      | Input  | f32   |
        | y      | Output | f32   |
    }
    constraints {
        x and y must have the same Sizes.
    }
    compute {
        y = floor(x) + max(x, 0) * 0
    }
}

operator FLOOR_GRAD {
    tensors {
        | Tensor | Kind   | Types |
        | x      | Input  | f32   |
        | dy     | Input  | f32   |
        | dx     | Output | f32   |
    }
    gradient of FLOOR with respect to x
}
"""


@pytest.mark.parametrize("command", [("ir",), ("compile", "-o", "out"), ("check", "--bind")])
def test_gradients_that_are_0_are_warned_of(command: tuple[str, ...], dmlc: Dmlc) -> None:
    Path("flat.dml").write_text(FLAT.replace(" + max(x, 0) * 0", ""), "utf-8")
    found = dmlc(command[0], "flat.dml:FLOOR_GRAD", *command[1:], "--tensor", "x=f32[4]",
                 "--tensor", "dy=f32[4]")  # fmt: skip
    assert found.status == 0
    assert "flat.dml:22:5: warning: 'dx' is 0 everywhere" in found.err


def test_show_says_what_a_gradient_is_where_there_is_none(dmlc: Dmlc) -> None:
    Path("flat.dml").write_text(FLAT, "utf-8")
    found = dmlc("show", "flat.dml:FLOOR_GRAD")
    name, choice, first, *_ = found.out.splitlines()
    assert name == "// FLOOR_GRAD"
    assert choice.startswith("// max(x, c) ")
    assert choice.endswith(": y = floor(x) + max(x, 0) * 0")
    assert first == "operator FLOOR_GRAD {"
    assert "//" not in dmlc("show", "flat.dml:FLOOR").out.partition("\n")[2]


def test_index_notation_is_printed(dmlc: Dmlc) -> None:
    window = str(EXAMPLES / "window_mean.dml")
    found = dmlc("ir", window, "--tensor", "src=f32[2,3]", "--attr", "reach=0,1")
    assert found.status == 0
    assert "%dst_sum: f32[i0 < 2, i1 < 3] = sum[r0 < 1, r1 < 3] {" in found.out
    shown = dmlc("show", window)
    assert shown.status == 0
    assert "dst[i...] = mean[k... : 2 * reach + 1 where all(inside(at(i, k))...)]" in shown.out


# devices --------------------------------------------------------------------------------------


def test_devices(dmlc: Dmlc) -> None:
    found = dmlc("devices")
    assert found.status == 0
    assert found.out.startswith("opencl:0  ")
    listed = json.loads(dmlc("devices", "--json").out)
    assert len(listed) == len(found.out.splitlines())
    assert listed[0]["selector"] == "opencl:0"
    assert any("compute units" in fact for fact in listed[0]["facts"])
    assert [row["selector"] for row in listed[-3:]] == ["vulkan:0", "strict:0", "wgpu:0"]


def test_devices_are_checked(dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch) -> None:
    found = dmlc("devices", "--check")
    assert found.status == 0
    said = found.out.splitlines()
    assert len(said) == 2 * len(dmlc("devices").out.splitlines())
    assert set(said[1::2]) == {"    every known answer is right"}
    assert [row["wrong"] for row in json.loads(dmlc("devices", "--check", "--json").out)] == [
        [] for _ in said[::2]
    ]

    def lie(device: object) -> tuple[str, ...]:
        if isinstance(device, WgpuDevice):
            raise UnavailableError("no DXC")
        return ("tanh is 3, not 1", "pow is wrong")

    monkeypatch.setattr(devices_command, "find_all_wrong", lie)
    found = dmlc("devices", "--check")
    assert found.status == 1
    assert found.out.splitlines()[1:3] == ["    tanh is 3, not 1", "    pow is wrong"]
    assert found.out.endswith("    cannot be checked: no DXC\n")


def test_a_device_that_is_wrong_is_warned_of(dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(_: object) -> tuple[str, ...]:
        return ("tanh is 3, not 1",)

    for name in ("_settled", "_said"):
        monkeypatch.setattr(known_answers, name, {})
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    monkeypatch.setattr(known_answers, "find_wrong_answers", lie)
    np.save("x.npy", np.ones((2, 3), np.float32))
    run = ["run", GRAD, *(f"--input={n}=x.npy" for n in ("InputTensor", "InputGradientTensor"))]
    found = dmlc(*run)
    assert (found.status, found.out) == (3, "")
    assert "computes wrongly: tanh is 3, not 1" in found.err
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        found = dmlc(*run, "--device", "opencl:0")
    assert found.status == 0
    (line,) = [line for line in found.err.splitlines() if "wrongly" in line]
    assert line.startswith("warning: opencl:0, ")


def test_devices_that_are_made_up(dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(
        index=0, name="GPU", platform="Maker", platform_index=0, kind=DeviceKind.GPU,
        version="OpenCL 3.0 ", compute_units=24, memory_size=8 << 30, max_allocation=1 << 30,
        memory=Memory.COPIED, float64=False,
        floats=FloatPromises(special=(16, 32), single=Division(2.5, 3.0)),
    )  # fmt: skip
    monkeypatch.setattr(opencl, "devices", lambda: (device,))

    def find_nothing() -> tuple[VulkanDevice, ...]:
        raise UnavailableError("there is no Vulkan", notes=["install it"])

    monkeypatch.setattr(vulkan, "devices", find_nothing)
    monkeypatch.setattr(wgpu, "devices", find_nothing)
    assert dmlc("devices").out == (
        "opencl:0  GPU: Maker, OpenCL 3.0, gpu, 24 compute units, 8,192 MiB, largest buffer "
        "1,024 MiB, no float64, memory copied, NaN and signed zeros kept of 16 and 32 bits, "
        "denormals not promised, division within 2.5 ulp, square roots 3\n"
        "strict:0  simulated strict device: interprets kernels in NumPy, every freedom, "
        "NaN and signed zeros kept of 16, 32 and 64 bits, denormals not promised, division within "
        "2.5 ulp, square roots 4.5\n"
    )
    monkeypatch.setattr(opencl, "devices", lambda: ())
    found = dmlc("devices")
    assert found.status == 3
    assert [line.split()[0] for line in found.out.splitlines()] == ["strict:0"]
    assert "apt-get install pocl-opencl-icd" in found.err
    assert "there is no Vulkan" in found.err
    assert [row["selector"] for row in json.loads(dmlc("devices", "--json").out)] == ["strict:0"]


def test_compile_writes_host_code(dmlc: Dmlc) -> None:
    found = dmlc("compile", GRAD, "--target", "hlsl", "--host", "cpp", "-o", "out")
    assert found.status == 0, found.err
    assert "out/ACTIVATION_RELU_GRAD.hpp" in found.out.splitlines()
    header = Path("out/ACTIVATION_RELU_GRAD.hpp").read_text("utf-8")
    assert "namespace dmlc::ACTIVATION_RELU_GRAD {" in header
    # The header makes the root signature; with all targets, it is that of the HLSL.
    assert "RootSignature" not in Path("out/ACTIVATION_RELU_GRAD.hlsl").read_text("utf-8")
    # Without a folder there are no shaders, and none has a digest.
    shown = dmlc("compile", GRAD, "--host", "cpp").out
    assert shown == re.sub(r"\{\d+, 0x\w+\}(?=\},\n\}\};)", "{0, 0}", header)
    assert "RootSignature" in dmlc("compile", GRAD, "--target", "hlsl").out
    manifest = json.loads(dmlc("compile", GRAD, "--target", "hlsl", "--host", "cpp", "--json").out)
    assert manifest["name"] == "ACTIVATION_RELU_GRAD"


def test_host_code_is_for_hlsl(dmlc: Dmlc) -> None:
    found = dmlc("compile", GRAD, "--target", "opencl", "--host", "cpp")
    assert found.status == 2
    assert "--host cpp needs the target hlsl" in found.err


def test_compile_writes_a_dxdispatch_model(dmlc: Dmlc) -> None:
    sizes = [f"--tensor={n}=FLOAT32[2,3]" for n in ("InputTensor", "InputGradientTensor")]
    found = dmlc("compile", GRAD, *sizes, "--target", "hlsl", "--dxdispatch", "-o", "out")
    assert found.status == 0
    model = json.loads(Path("out/dxdispatch/ACTIVATION_RELU_GRAD.json").read_text("utf-8"))
    assert "DirectML" in model["dispatchables"]
    written = {path.name for path in Path("out/dxdispatch").iterdir()}
    assert {"InputTensor.npy", "ACTIVATION_RELU_GRAD.hlsl"} <= written
    shader = Path("out/dxdispatch/ACTIVATION_RELU_GRAD.hlsl").read_text("utf-8")
    assert "RootSignature" not in shader
    assert dmlc("compile", GRAD, *sizes, "--dxdispatch").status == 2
    name = "OutputGradientTensor"
    printed = [line for line in found.err.splitlines() if "dmlc compare" in line]
    assert printed == [
        # Shaders see the six elements as two structures of four.
        f"  dmlc compare {name}.dmlc.npy expected.{name}.npy --bounds bound.{name}.npy "
        "--elements 6",
        f"  dmlc compare {name}.dmlc.npy {name}.directml.npy --bounds bound.{name}.npy "
        f"--bounds bound.{name}.npy --elements 6",
    ]
    assert dmlc("compile", GRAD, "--dxdispatch", "-o", "other").status == 1
    assert not Path("other").exists()


def test_compile_for_shader_model_6_0(dmlc: Dmlc) -> None:
    sizes = [f"--tensor={n}=FLOAT16[5]" for n in ("InputTensor", "InputGradientTensor")]
    arguments = ("compile", GRAD, *sizes, "--target", "hlsl", "--shader-model", "6.0")
    found = dmlc(*arguments, "--dxdispatch", "-o", "out")
    assert found.status == 0
    for folder in ("out", "out/dxdispatch"):
        shader = Path(folder, "ACTIVATION_RELU_GRAD.hlsl").read_text("utf-8")
        assert "cs_6_0" in shader
        assert "StructuredBuffer<uint> InputTensor" in shader


def test_export_writes_an_example_where_nothing_is_bound(dmlc: Dmlc) -> None:
    found = dmlc("export", "directml.GEMM", "-o", "out")
    assert found.status == 0
    assert {Path(line).name for line in found.out.splitlines()} == {
        path.name for path in Path("out").iterdir()
    }
    assert "dxdispatch.exe GEMM.json" in found.err
    compare = "dmlc compare OutputTensor.dmlc.npy expected.OutputTensor.npy"
    for text in (found.err, Path("out/README.txt").read_text("utf-8")):
        assert f"  {compare} --bounds bound.OutputTensor.npy\n" in text
    assert np.load("out/expected.OutputTensor.npy").reshape(-1).tolist() == [12, 14, 16, 6, 8, 14]


def test_export_of_arrays_and_drawn_values(dmlc: Dmlc) -> None:
    np.save("x.npy", np.float32([-1, 2, 3]))
    given = ("--input", "InputTensor=x.npy", "--tensor", "InputGradientTensor=FLOAT32[3]")
    texts: list[str] = []
    for seed in ("1", "1", "2"):
        arguments = ("--to", "offload-test-suite", "--seed", seed, "-o", f"out{len(texts)}")
        found = dmlc("export", GRAD, *given, *arguments)
        assert (found.status, found.err.splitlines()[-1]) == (
            0,
            "  llvm-lit ACTIVATION_RELU_GRAD.test",
        )
        path = Path(f"out{len(texts)}", "ACTIVATION_RELU_GRAD.test")
        assert found.out == f"{path}\n"
        texts.append(path.read_text("utf-8"))
    assert "Data: [ -1.0, 2.0, 3.0" in texts[0]
    assert texts[0] == texts[1] != texts[2]
    assert "data drawn with seed 2" in texts[2]


def test_export_takes_types_and_strides_of_arrays(dmlc: Dmlc) -> None:
    np.save("x.npy", np.uint16([[0x3F80, 0xBF80], [0, 0x4000]]))
    described = "--tensor", "src=BFLOAT16[2,2]{4,1}", "--input", "src=x.npy"
    other = "--tensor", "diff_dst=BFLOAT16[2,2]", "--attr", "use_dst=false"
    found = dmlc("export", "onednn.ReLUBackward", *described, *other, "-o", "out")
    assert found.status == 0
    assert np.load("out/src.npy").tolist() == [0x3F80, 0xBF80, 0, 0, 0, 0x4000]
    plain = "--tensor", "src=BFLOAT16", "--input", "src=x.npy"
    assert dmlc("export", "onednn.ReLUBackward", *plain, *other, "-o", "out").status == 0
    assert np.load("out/src.npy").tolist() == [[0x3F80, 0xBF80], [0, 0x4000]]


def test_export_refuses_what_it_cannot_write(dmlc: Dmlc) -> None:
    assert dmlc("export", GRAD).status == 2
    assert dmlc("export", GRAD, "--to", "paper", "-o", "out").status == 2
    found = dmlc("export", GRAD, "--tensor", "InputTensor=FLOAT32[N]", "-o", "out")
    assert found.status == 1
    Path("exp.dml").write_text(
        "operator F {\n    tensors {\n        | Tensor | Kind | Types |\n        | X | Input | "
        "FLOAT64 |\n        | Y | Output | FLOAT64 |\n    }\n    compute { Y = exp(X) }\n}\n"
    )
    found = dmlc("export", "exp.dml", "--tensor", "X=FLOAT64[4]", "-o", "out")
    assert (found.status, "HLSL only has + - * / and comparisons" in found.err) == (1, True)
    assert not Path("out").exists()


def test_compare_of_so_many_elements(dmlc: Dmlc) -> None:
    """Buffers are written as whole words, or whole structures of several elements."""
    np.save("expected.npy", np.float16([[1, 2, 3]]))
    np.save("bound.npy", np.zeros((1, 3)))
    np.save("line.npy", np.float16([1, 2, 3, 99]))
    arguments = ("expected.npy", "--bounds", "bound.npy", "--elements", "3")
    assert dmlc("compare", "line.npy", *arguments).out == "PASS: exact (3 elements)\n"
    assert (
        dmlc("compare", "line.npy", "line.npy", *arguments[1:]).out == "PASS: exact (3 elements)\n"
    )
    assert "they cannot be compared" in dmlc("compare", "line.npy", *arguments[:3]).err
    np.save("line.npy", np.float16([1, 2, 4, 99]))
    assert dmlc("compare", "line.npy", *arguments).status == 1
    np.save("line.npy", np.float16([1, 2]))
    assert "they cannot be compared" in dmlc("compare", "line.npy", *arguments).err
    np.save("line.npy", np.float16([[1, 2, 3, 99]]))
    assert "they cannot be compared" in dmlc("compare", "line.npy", *arguments).err


def test_compare(dmlc: Dmlc) -> None:
    np.save("a.npy", np.float32([[1, 2], [np.nan, -0.0]]))
    np.save("b.npy", np.float32([1, 2, np.nan, 0.0]))
    np.save("c.npy", np.float32([1, 2.5, np.nan, 0.0]))
    np.save("d.npy", np.float64([1, 2.5, np.nan, 0.0]))
    assert dmlc("compare", "a.npy", "b.npy").out == "PASS: exact (4 elements)\n"
    apart = dmlc("compare", "a.npy", "c.npy")
    assert apart.status == 1
    assert "1 of 4 elements differ" in apart.out
    assert dmlc("compare", "a.npy", "c.npy", "--relative", "0.3").status == 0
    described = json.loads(dmlc("compare", "a.npy", "c.npy", "--json").out)
    assert (described["within"], described["worst"]) == (False, [1])
    told = [described[f"worst_{what}"] for what in ("actual", "expected", "allowed")]
    assert told == [2, 2.5, 0]
    other = dmlc("compare", "c.npy", "d.npy")
    assert other.status == 1
    assert "they cannot be compared" in other.err


def test_compare_within_bounds(dmlc: Dmlc) -> None:
    np.save("a.npy", np.float32([1, 2, -3, 4]))
    np.save("b.npy", np.float32([[1, 2.5], [-3.25, 4]]))
    np.save("bound.npy", np.float64([[0, 0.25], [0.5, np.inf]]))
    apart = dmlc("compare", "a.npy", "b.npy", "--bounds", "bound.npy")
    assert apart.status == 1
    assert apart.out == (
        "FAIL: 2 of 4 elements differ, by 0.5 at most (0.2 relative, 2097152 ulp); at [0, 1] it is "
        "2 where 2.5 is expected: it may be off by 0.25 at most\n"
    )
    twice = ("--bounds", "bound.npy", "--bounds", "bound.npy")
    assert dmlc("compare", "a.npy", "b.npy", *twice).status == 0
    assert dmlc("compare", "a.npy", "b.npy", *twice[:2], "--absolute", "0.25").status == 0
    for wrong in (np.float64([0.5]), np.int64([1, 1, 1, 1]), np.float64([1, 1, -1, 1]),
                  np.float64([1, 1, np.nan, 1])):  # fmt: skip
        np.save("wrong.npy", wrong)
        refused = dmlc("compare", "a.npy", "b.npy", "--bounds", "wrong.npy")
        assert refused.status == 1
        assert refused.err.startswith("error: 'wrong.npy' has ")


def test_compare_words_of_bfloat16(dmlc: Dmlc) -> None:
    np.save("a.npy", np.uint16([0x3F80, 0x4001]))
    np.save("b.npy", np.uint16([0x3F80, 0x4000]))
    assert dmlc("compare", "a.npy", "b.npy", "--relative", "0.01").status == 1
    assert dmlc("compare", "a.npy", "b.npy", "--relative", "0.01", "--bfloat16").status == 0


# Files that are not what they should be -----------------------------------------------------------


def test_check_does_not_read_without_end_nor_quote_other_files(dmlc: Dmlc) -> None:
    found = dmlc("check", "/dev/zero")
    assert (found.status, found.err) == (1, "error: '/dev/zero' is no .dml file [E0001]\n")
    Path("a.dml").write_text('import "/etc/passwd"\n', "utf-8")
    found = dmlc("check", "a.dml")
    assert found.status == 1
    assert found.err.startswith("a.dml:1:1: error: '/etc/passwd' is not below ")
    assert "root:" not in found.err
    assert dmlc("fmt", "/etc/passwd").err == "error: '/etc/passwd' is no .dml file [E0001]\n"
    assert dmlc("show", "/etc/passwd").err == "error: '/etc/passwd' is no .dml file [E0001]\n"


def test_import_folders(dmlc: Dmlc) -> None:
    Path("shared").mkdir()
    Path("shared/twice.dml").write_text("function twice(x) = 2 * x\n", "utf-8")
    Path("own").mkdir()
    text = NEGATE.replace("-x", "-twice(x)")
    Path("own/a.dml").write_text('import "../shared/twice.dml"\n' + text, "utf-8")
    commands = [
        ("check", "own/a.dml"), ("show", "own/a.dml"), ("ir", "own/a.dml"),
        ("graph", "own/a.dml"), ("compile", "own/a.dml"),
    ]  # fmt: skip
    for command in commands:
        refused = dmlc(*command)
        assert refused.status == 1
        assert "allow its folder" in refused.err
        assert dmlc(*command, "--import-folder", "shared").status == 0, command
    np.save("x.npy", np.ones((2, 3), np.float32))
    ran = ("run", "own/a.dml", "--input", "x=x.npy", "--device", "reference", "-o", "out")
    assert dmlc(*ran).status == 1
    assert dmlc(*ran, "--import-folder", "shared").status == 0
