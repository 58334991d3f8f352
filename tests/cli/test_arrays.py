"""Array files: what is read, what is refused, and bfloat16, which the format has no name for."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import dmlc
from dmlc import DataType, DmlcError, TensorDesc
from dmlc.cli.arrays import encode_array, make_outputs, read_array, read_arrays

Array = npt.NDArray[Any]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def save(path: Path, array: Array, version: tuple[int, int] = (1, 0)) -> str:
    with path.open("wb") as file:
        np.lib.format.write_array(file, array, version)
    return str(path)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(
    "array",
    [X, X.T, X.astype(np.float16), X.astype(np.int64), X.astype(np.uint8), X > 2, X[:0], X[0, 0:1],
     np.float64(3).reshape(())],
)  # fmt: skip
def test_arrays_are_read(array: Array, version: tuple[int, int], tmp_path: Path) -> None:
    found = read_array(save(tmp_path / "x.npy", array, version))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_other_byte_orders_are_read_as_this_machine_has_them(tmp_path: Path) -> None:
    for order in "<>":
        found = read_array(save(tmp_path / "x.npy", X.astype(f"{order}f4")))
        assert found.dtype.isnative
        np.testing.assert_array_equal(found, X)


def test_bfloat16_is_read_from_plain_bytes(tmp_path: Path) -> None:
    halves = X.astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", halves)
    found = read_array(str(tmp_path / "x.npy"))
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found.view(np.uint16), halves.view(np.uint16))


@pytest.mark.parametrize("words", [np.uint16, np.int16])
def test_bfloat16_is_read_from_words_where_the_tensor_says_so(
    words: npt.DTypeLike, tmp_path: Path
) -> None:
    path = save(tmp_path / "x.npy", X.astype(ml_dtypes.bfloat16).view(words))
    assert read_array(path, DataType.BFLOAT16).dtype == ml_dtypes.bfloat16
    assert read_array(path).dtype == words


def test_results_read_back(tmp_path: Path) -> None:
    for array in (X, X.astype(ml_dtypes.bfloat16), X.T, X[:0]):
        (tmp_path / "y.npy").write_bytes(encode_array(array))
        found = read_array(str(tmp_path / "y.npy"))
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found.astype(np.float64), array.astype(np.float64))


def file_of(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


WHOLE = file_of(X)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is cut short"),
        (WHOLE[:7], "it is cut short"),
        (WHOLE[:100], "it is cut short"),
        (WHOLE[:-1], "it is cut short"),
        (b"PK\x03\x04" + bytes(60), "it does not begin as one"),
        (b"\x80\x04\x95" + bytes(60), "it does not begin as one"),
        (WHOLE.replace(b"descr", b"desrc"), "its header is damaged"),
        (WHOLE.replace(b"(2, 3)", b"(2, -3"), "its header is damaged"),
        (WHOLE.replace(b"(2, 3), }", b"(9**9,) }"), "its header is damaged"),
        (file_of(np.array([{}, None], object)), "it holds Python objects"),
    ],
)
def test_files_that_cannot_be_read(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(DmlcError) as raised:
        read_array(str(path))
    assert str(raised.value) == (
        f"error: '{path}' is not a .npy file that can be read: {reason}\n"
        "  note: write one with numpy.save('x.npy', array)"
    )


def test_a_file_that_claims_more_than_there_is(tmp_path: Path) -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }"
    for size in (10**6, 10**18):
        text = (header % size).ljust(117) + "\n"
        content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
        (tmp_path / "x.npy").write_bytes(content)
        with pytest.raises(DmlcError, match=r"is not a \.npy file that can be read"):
            read_array(str(tmp_path / "x.npy"))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DmlcError, match=r"cannot read '.*none\.npy': no such file"):
        read_array(str(tmp_path / "none.npy"))
    with pytest.raises(DmlcError, match=r"cannot read '.*': it is a directory"):
        read_array(str(tmp_path))


@pytest.mark.parametrize(
    "array",
    [X.astype(np.complex64), np.array(["a"]), np.array([b"ab"]), np.zeros(2, "V4"),
     np.zeros(2, [("a", "u1"), ("b", "u1")]), np.zeros(2, "M8[s]")],
)  # fmt: skip
def test_types_no_tensor_holds(array: Array, tmp_path: Path) -> None:
    with pytest.raises(DmlcError, match="which no tensor can hold"):
        read_array(save(tmp_path / "x.npy", array))


def test_what_is_said_about_an_input_must_hold(tmp_path: Path) -> None:
    path = save(tmp_path / "x.npy", X)
    assert set(read_arrays({"A": path}, {"A": TensorDesc("FLOAT32", (2, 3))})) == {"A"}
    with pytest.raises(DmlcError, match=r"says that A is FLOAT16, but '.*' holds FLOAT32"):
        read_arrays({"A": path}, {"A": TensorDesc("FLOAT16")})
    with pytest.raises(DmlcError, match=r"A has the sizes \[3, 2\], but '.*' has \[2, 3\]"):
        read_arrays({"A": path}, {"A": TensorDesc("FLOAT32", (3, 2))})


def test_outputs_are_made_as_described() -> None:
    operator = dmlc.operator("onednn.ReLU")
    assert make_outputs(operator, {"src": X}, {"src": TensorDesc("FLOAT32")}, {}, {}) == {}
    made = make_outputs(operator, {"src": X}, {"dst": TensorDesc("FLOAT32")}, {}, {})
    assert made["dst"].shape == (2, 3)
    assert made["dst"].dtype == np.float32
    with pytest.raises(DmlcError, match="unknown tensor 'dts'"):
        make_outputs(operator, {"src": X}, {"dts": TensorDesc("FLOAT32")}, {}, {})
    with pytest.raises(DmlcError):
        make_outputs(operator, {"src": X}, {"dst": TensorDesc("FLOAT16")}, {}, {})


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    for path in ("/dev/zero", tmp_path / "pipe.npy"):
        with pytest.raises(DmlcError, match="it is no regular file"):
            read_array(str(path))
    with pytest.raises(DmlcError, match="it is a directory"):
        read_array(str(tmp_path))


def test_a_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little"))
        file.truncate(1 << 40)
    with pytest.raises(DmlcError, match="its header is damaged"):
        read_array(str(path))
