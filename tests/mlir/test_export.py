"""The text of exported functions. Whether IREE takes it and what it computes is `tests/peers`'."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import cli, ir
from dmlc.scalars import OPERATIONS, TENSOR_TYPES, DataType
from dmlc.testing.examples import read_cases
from tests.codegen.test_operations import make_casts, make_function
from tests.goldens import CASES, GOLDEN, read_case
from tests.mlir.check import find_faults


def export(text: str) -> str:
    """The MLIR of a function of the IR."""
    made = dmlc.mlir.export(ir.parse(text))
    assert find_faults(made) == []
    return made


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, check_golden: Callable[[Path, str], None]) -> None:
    text = dmlc.mlir.export(read_case(case))
    assert find_faults(text) == []
    check_golden(GOLDEN / f"{case}.mlir", text)


def test_the_check_finds_faults() -> None:
    text = dmlc.mlir.export(read_case("add_transposed"))
    assert find_faults(text) == []
    assert "is not defined" in find_faults(text.replace("arith.addf %A", "arith.addf %Z"))[0]
    again = text.replace("%OutputTensor.empty = ", "%ATensor = ")
    assert "%ATensor again" in find_faults(again)[0]
    maps = text.replace("      affine_map<(d0, d1) -> (d0, d1)>,\n", "", 1)
    assert "unequal" in find_faults(maps)[0]


@pytest.mark.parametrize("name", dmlc.operators())
def test_every_operator_of_the_library_has_a_text(name: str) -> None:
    operator = dmlc.operator(name)
    for example in operator.definition.examples:
        case = next(iter(read_cases(operator, example)))
        assert find_faults(dmlc.mlir.export(case.call.function)) == []


@pytest.mark.parametrize("dtype", TENSOR_TYPES)
def test_every_operation_has_a_form(dtype: DataType) -> None:
    function = make_function(dtype)
    text = dmlc.mlir.export(function)
    assert find_faults(text) == []
    taken = [o for o in OPERATIONS.values() if o.operands.accept(dtype)]
    assert text.count("linalg.generic") == len(taken) == len(function.results)
    if not dtype.is_storage_only:
        assert find_faults(dmlc.mlir.export(make_casts(dtype))) == []


def test_strided_and_shifted_reads_are_slices() -> None:
    text = export("""func @f(%x: f32[9, 1, 7]) -> (%y, %z) {
      %y: f32[i0 < 4, i1 < 7] = %x[add(mul(i0, 2), 1), 0, i1]
      %z: f32[i0 < 4, i1 < 7] = neg(%x[add(mul(i0, 2), 1), 0, i1])
    }""")
    taken = "tensor.extract_slice %x[1, 0, 0] [4, 1, 7] [2, 1, 1] : "
    taken += "tensor<9x1x7xf32> to tensor<4x7xf32>"
    assert text.count(taken) == 1
    assert text.count("ins(%x.slice : tensor<4x7xf32>)") == 2
    assert "tensor.extract %" not in text


def test_windows_are_maps_and_name_their_extents() -> None:
    text = export("""func @f(%x: f32[8]) -> (%y) {
      %y: f32[i0 < 3] = max[r0 < 4] %x[add(mul(i0, 2), r0)]
    }""")
    assert "affine_map<(d0, d1) -> (d0 * 2 + d1)>" in text
    assert "%y.window = tensor.empty() : tensor<4xf32>" in text
    assert "affine_map<(d0, d1) -> (d1)>" in text


def test_what_a_guard_keeps_inside_is_held_inside_without_it() -> None:
    text = export("""func @f(%x: f32[8], %i: s32[3]) -> (%y, %z) {
      %y: f32[i0 < 8] = sum[r0 < 3] {
        v0 = sub(add(i0, r0), 1)
        where and(ge(v0, 0), lt(v0, 8))
        %x[v0]
      }
      %z: f32[i0 < 3] = %x[min(max(cast(%i[i0], index), 0), 7)]
    }""")
    guarded, free = text.split("// %z:")
    assert guarded.count("arith.maxsi") == guarded.count("arith.minsi") == 1
    assert "%acc : f32" in guarded
    # The clamp of the IR itself, and no other.
    assert free.count("arith.maxsi") == free.count("arith.minsi") == 1


def test_positions_carry_value_and_place_and_whether_there_was_one() -> None:
    plain = export("func @f(%x: f32[4, 5]) -> (%y) { %y: s32[i0 < 4] = argmax[r0 < 5] %x[i0, r0] }")
    assert "%y.best, %y = linalg.generic" in plain
    guarded = export("""func @f(%x: f32[4, 5]) -> (%y) {
      %y: u32[i0 < 4] = argmin[r0 < 5 where gt(%x[i0, r0], 0.0)] %x[i0, r0]
    }""")
    assert "%y.best, %y, %y.found = linalg.generic" in guarded


def test_reductions_of_what_depends_on_positions_alone_read_something() -> None:
    """IREE takes a value without an operand for one that is reduced already."""
    known = export("func @f() -> (%y) { %y: u16[i0 < 3] = product[r12 < 2] 91:u16 }")
    assert "linalg.fill ins(%i16_8281 : i16) outs(%y.empty : tensor<3xi16>)" in known
    table = export("func @f() -> (%y) { %y: s32[i0 < 3, i1 < 2] = sum[r0 < 4] cast(i0, s32) }")
    assert 'arith.constant dense<"0x000000000400000008000000">' in table
    counted = export("func @f(%x: f32[n, m]) -> (%y) { %y: s32[] = sum[r0 < n, r1 < 3] 2:s32 }")
    assert "reduction" not in counted
    assert "%y: s32[] = mul(2:s32, cast(mul(size(n), 3), s32))" in counted
    guarded = export("""func @f(%x: f32[n]) -> (%y) {
      %y: s32[i0 < n] = sum[r0 < 4, r1 < 3 where lt(r0, i0)] cast(mul(r1, i0), s32)
    }""")
    assert "%y.values: s32[i0 < n, i1 < 4, i2 < 3] = cast(mul(i2, i0), s32)" in guarded
    assert "%acc : i32" in guarded


def test_sixteen_bits_are_added_up_in_thirty_two() -> None:
    text = export("func @f(%x: bf16[4, 5]) -> (%y) { %y: bf16[i0 < 4] = sum[r0 < 5] %x[i0, r0] }")
    assert "%y.f32 = linalg.generic" in text
    assert "arith.extf %x.in : bf16 to f32" in text
    assert text.count("arith.truncf") == 1


def test_operations_that_mlir_leaves_open_are_closed() -> None:
    text = export("""func @f(%a: s32[n], %b: s32[n], %c: f32[n]) -> (%q, %d, %s, %t) {
      %q: s32[i0 < n] = div(%a[i0], %b[i0])
      %d: s32[i0 < n] = mod(%a[i0], 3:s32)
      %s: s32[i0 < n] = shift_left(%a[i0], %b[i0])
      %t: u8[i0 < n] = cast(%c[i0], u8)
    }""")
    q, d, s, t = text.split("linalg.generic")[1:]
    assert q.count("arith.select") == 3
    assert "arith.select" not in d
    assert "arith.andi %b.in, %i32_31" in s
    assert t.count("arith.select") == 3
    assert "%i8_255" in t


def test_open_sizes_are_dimensions() -> None:
    text = export(
        """func @f(%x: f32[n, m]) -> (%y, %z) where ("n != 1") {
      %y: f32[i0 < 2 * n + 1] = cast(i0, f32)
      %z: f32[i0 < n] = div(%x[i0, 0], cast(size(m), f32))
    }"""
    )
    assert "%n = tensor.dim %x, %c0 : tensor<?x?xf32>" in text
    assert 'cf.assert %size, "f is for sizes where n != 1"' in text
    assert "-> (tensor<?xf32>, tensor<?xf32>)" in text
    assert "arith.muli %n, %c2 : index" in text
    assert "arith.index_cast %m : index to i64" in text


def test_what_has_no_points_is_filled() -> None:
    text = export("""func @f(%x: f16[0, 3]) -> (%y, %z, %w) {
      %y: f16[i0 < 3] = min[r0 < 0] %x[r0, i0]
      %z: f16[i0 < 0] = %x[i0, 0]
      %w: s32[i0 < 3] = argmin[r0 < 0] %x[r0, i0]
    }""")
    assert "linalg.generic" not in text
    assert text.count("linalg.fill") == 3
    assert "arith.constant 0x7C00 : f16" in text
    assert "tensor<0xf16>" in text


def test_tables_are_hexadecimal_and_long_ones_are_resources() -> None:
    short = export("""func @f(%x: f32[2]) -> (%y) {
      table %t: f32[2] = {1.0, -2.5}
      table %b: boolean[2] = {true, false}
      %y: f32[i0 < 2] = select(%b[i0], mul(%x[i0], %t[i0]), 0.0)
    }""")
    assert '%t = arith.constant dense<"0x0000803F000020C0"> : tensor<2xf32>' in short
    assert "%b = arith.constant dense<[true, false]> : tensor<2xi1>" in short
    values = ", ".join(f"{n}.5" for n in range(2000))
    long = export(f"""func @f(%x: f32[2000]) -> (%y) {{
      table %t: f32[2000] = {{{values}}}
      %y: f32[i0 < 2000] = mul(%x[i0], %t[i0])
    }}""")
    assert "%t = arith.constant dense_resource<f.t> : tensor<2000xf32>" in long
    assert 'f.t: "0x040000000000003F0000C03F' in long


def test_literals_read_back_exactly() -> None:
    text = export("""func @f(%x: f32[n], %z: f64[n]) -> (%y, %w) {
      %y: f32[i0 < n] = add(add(add(%x[i0], 0.1), 1e+20), add(mul(%x[i0], -0.0), 3.4028235e+38))
      %w: f64[i0 < n] = select(lt(%z[i0], 0.1:f64), nan:f64, %z[i0])
    }""")
    for literal in ("0.1 : f32", "1.0e+20 : f32", "-0.0 : f32", "0.1 : f64"):
        assert f"= arith.constant {literal}" in text
    assert "0x7FF8000000000000 : f64" in text
    numbers = np.random.default_rng(1).integers(0, 2**31, 200, np.uint32).view(np.float32)
    for number in numbers[np.isfinite(numbers)]:
        one = ir.Constant(DataType.FLOAT32, float(number))
        written = dmlc.mlir.export(_add(one)).partition("arith.constant ")[2].partition(" ")[0]
        assert np.float32(float(written)) == number


def _add(constant: ir.Constant) -> ir.Function:
    load = ir.Load("x", (0,), DataType.FLOAT32)
    apply = ir.Apply(OPERATIONS["max"], (1, 2), DataType.FLOAT32)
    body = ir.Body.make((ir.Index(0), load, constant, apply), 3)
    stage = ir.Stage("y", DataType.FLOAT32, (4,), body)
    parameter = ir.Parameter("x", DataType.FLOAT32, (4,))
    return ir.Function("f", (parameter,), (stage,), (ir.Result("y"),))


def test_names_of_stages_that_look_like_others() -> None:
    export("""func @f(%c0: f32[4], %x.in: f32[4], %x: f32[4]) -> (%acc) {
      %i0: f32[i0 < 4] = add(%c0[sub(3, i0)], 0.0)
      %acc: f32[i0 < 4] = sum[r0 < 4 where ge(sub(add(i0, r0), 0), 0)]
        add(%i0[sub(3, i0)], add(%x.in[i0], %x[r0]))
    }""")


def test_what_export_takes() -> None:
    by_name = dmlc.mlir.export("directml.ACTIVATION_RELU")
    assert by_name == dmlc.mlir.export(dmlc.operator("directml.ACTIVATION_RELU"))
    given = {"src": dmlc.TensorDesc("FLOAT32", [2, 5])}, {"axis": 1}
    bound = dmlc.operator("onednn.SoftMax").bind(*given)
    assert dmlc.mlir.export("onednn.SoftMax", *given) == dmlc.mlir.export(bound)
    with pytest.raises(dmlc.DmlcError, match="SoftMax' is an operator, which takes no dims"):
        dmlc.mlir.export("onednn.SoftMax", dims={"N": 2})
    with pytest.raises(dmlc.ArgumentError, match="subject"):
        dmlc.mlir.export(3)  # pyright: ignore[reportArgumentType]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "made"
    assert cli.run(["export", "directml.GEMM", "--to", "mlir", "-o", str(folder)]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == str(folder / "GEMM.mlir")
    assert "iree-compile" in shown.out + shown.err
    assert find_faults((folder / "GEMM.mlir").read_text("utf-8")) == []
    assert cli.run(["export", "directml.GEMM", "--to", "mlir", "--seed", "2", "-o", "x"]) == 2


def test_writing_needs_no_other_package() -> None:
    code = (
        "import sys, dmlc; text = dmlc.mlir.export('directml.ACTIVATION_RELU');"
        "assert 'linalg.generic' in text;"
        "assert not {'iree', 'onnx', 'torch', 'pyopencl'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
