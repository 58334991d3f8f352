"""The checksum of containers, held to what `vkd3d_shader_serialize_dxbc` of vkd3d 2.1 writes."""

from __future__ import annotations

import struct

import pytest

from dmlc.runtime.dxbc import find_checksum, sign
from dmlc.runtime.hlsl import compile_files
from dmlc.shader_model import is_signed
from tests.runtime.handmade_hlsl import relu_grad

WRITTEN = {
    0: "241ff2381a07b6ee5d4c97e68ffe70c4",
    28: "94ff3e588dbda29f01c49079f54c8c98",
    32: "7187ae69f0573ac149d85ff8576346ab",
    36: "ea1fbb1537a9a4ab0a1d0b8d8843fb6c",
    40: "f86b9642fe44daed6e7acf3b60dcb6a6",
    100: "4e365ec1ed8fce7a54870d10ca9decc4",
    1000: "895e9b8169205445339c0f0a04a97849",
}
"""The checksum by the bytes of the container's one part: what is left behind whole blocks is less
than a block has room for, as much, and more."""


def make_container(size: int) -> bytes:
    """One without a checksum, with a part of so many bytes."""
    part = bytes((7 * number + 1) % 256 for number in range(size))
    head = struct.pack("<4I4sI", 1, 44 + size, 1, 36, b"TEST", size)
    return b"DXBC" + bytes(16) + head + part


@pytest.mark.parametrize("size", WRITTEN)
def test_the_checksum_is_what_others_write(size: int) -> None:
    container = make_container(size)
    assert find_checksum(container).hex() == WRITTEN[size]
    assert not is_signed(container)
    signed = sign(container)
    assert is_signed(signed)
    assert (signed[:4], signed[4:20].hex(), signed[20:]) == (b"DXBC", WRITTEN[size], container[20:])


def test_what_is_signed_is_left() -> None:
    container = b"DXBC" + b"\x5a" * 16 + make_container(8)[20:]
    assert sign(container) is container


def test_files_of_shaders_are_signed() -> None:
    (dxil,) = (data for name, data in compile_files(relu_grad()).items() if name.endswith(".dxil"))
    assert dxil[4:20] == find_checksum(dxil)
