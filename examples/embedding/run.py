"""The IR in a compiler of one's own: built, rewritten, fused, emitted, compiled and run.

python examples/embedding/run.py
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from to_c import emit

from dmlc import compiler, ir

FLAGS = ("-std=c11", "-O2", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC")


def build_norm() -> ir.Function:
    """y[i, j] = sigmoid(x[i, j] / sqrt(mean(x[i]^2))), of any sizes."""
    x = ir.Parameter("x", ir.DataType.FLOAT32, ("N", "C"))
    body = ir.BodyBuilder()
    value = body.load(x, body.index(0), body.reduced(0))
    square = body.make(body.apply("mul", value, value))
    total = ir.Stage("total", x.dtype, ("N",), square, ir.Reduction("sum", ((0, "C"),)))
    body = ir.BodyBuilder()
    count = body.cast(body.symbol("C"), x.dtype)
    mean = body.make(body.apply("div", body.read(total), count))
    power = ir.Stage("power", x.dtype, ("N",), mean)
    body = ir.BodyBuilder()
    root = body.apply("sqrt", body.load(power, body.index(0)))
    norm = body.make(body.apply("sigmoid", body.apply("div", body.read(x), root)))
    y = ir.Stage("y", x.dtype, ("N", "C"), norm)
    return ir.Function("norm", (x,), (total, power, y), (ir.Result("y"),))


def expand_sigmoid(body: ir.BodyBuilder, value: ir.Instruction) -> int | None:
    """A rule of one's own, for a language without sigmoid."""
    if not isinstance(value, ir.Apply) or value.operation.name != "sigmoid":
        return None
    one = body.constant(1, value.dtype)
    grown = body.apply("exp", body.apply("neg", *value.operands))
    return body.apply("div", one, body.apply("add", one, grown))


def compile_c(text: str, folder: Path) -> ctypes.CDLL:
    (folder / "made.c").write_text(text, "utf-8")
    made = folder / "made.so"
    include = f"-I{Path(__file__).parent}"
    subprocess.run(["cc", *FLAGS, include, "-o", made, folder / "made.c", "-lm"], check=True)
    return ctypes.CDLL(str(made))


def main() -> None:
    function = build_norm()
    ir.verify(function)
    fusion = compiler.fuse(compiler.simplify(ir.apply_rules(function, expand_sigmoid)))
    for group in fusion.groups:
        print("kernel:", group.reason)
    text = emit(fusion.function)
    print(text)
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    y = np.empty_like(x)
    with tempfile.TemporaryDirectory() as folder:
        norm = compile_c(text, Path(folder)).norm
        pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (x, y))
        norm(*pointers, ctypes.c_int64(x.shape[0]), ctypes.c_int64(x.shape[1]))
    expected = compiler.evaluate(function, {"x": x})["y"]
    print("as the reference:", np.allclose(y, expected, rtol=1e-6, atol=0))


if __name__ == "__main__":
    main()
