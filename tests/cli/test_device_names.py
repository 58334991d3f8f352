"""Names that Windows keeps for devices are those of no file, whatever is called so."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.conftest import Dmlc

AUX = """operator aux {
    tensors {
        | Tensor | Kind   | Types   |
        | NUL    | Input  | FLOAT32 |
        | con    | Output | FLOAT32 |
    }
    compute {
        con = 2 * NUL
    }
}
"""
DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def list_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (("compile", "--target", "all", "--host", "cpp"),
         {"aux_.cl", "aux_.hlsl", "aux_.hpp", "manifest.json"}),
        (("export", "--to", "dxdispatch"), {"aux_.json", "NUL_.npy", "expected.con.npy"}),
        (("export", "--to", "offload-test-suite"), {"aux_.test"}),
        (("export", "--to", "onnx"), {"aux_.onnx"}),
        (("export", "--to", "mlir"), {"aux_.mlir"}),
        (("run", "--input", "NUL=given.npy", "--device", "reference"), {"con_.npy"}),
    ],
)  # fmt: skip
def test_what_commands_write(dmlc: Dmlc, arguments: tuple[str, ...], files: set[str]) -> None:
    Path("own.dml").write_text(AUX)
    np.save("given.npy", np.ones(3, np.float32))
    command, *options = arguments
    sizes = [] if command == "run" else ["--tensor", "NUL=FLOAT32[3]"]
    found = dmlc(command, "own.dml", *sizes, *options, "-o", "out")
    assert found.status == 0, found.err
    names = list_files(Path("out"))
    assert files <= {*names}
    assert not [name for name in names if DEVICE.fullmatch(name)]
    assert not re.search(
        r"(?<![\w.])(NUL|con|aux)\.(npy|json|mlir|test|dmlc)", found.err + found.out
    )


def test_an_imported_model(dmlc: Dmlc) -> None:
    weight = np.arange(4096, dtype=np.float32)
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Add", ["NUL", "aux"], ["con"])],
            "g",
            [helper.make_tensor_value_info("NUL", TensorProto.FLOAT, [4096])],
            [helper.make_tensor_value_info("con", TensorProto.FLOAT, [4096])],
            [numpy_helper.from_array(weight, "aux")],
        )
    )
    onnx.save(model, "prn.onnx")
    found = dmlc("import-onnx", "prn.onnx", "-o", "out")
    assert found.status == 0, found.err
    assert list_files(Path("out")) == ["aux_.npy", "prn_.ir"]
    assert "out/prn_.weights/aux_.npy" in found.out
    assert "NUL=NUL_.npy" in found.err
