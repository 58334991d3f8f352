"""Checksum in the header of a container of compiled HLSL (DXBC), which Direct3D requires as a
signature.

It is MD5 with a different last block: the number of bits comes before the rest of the data, where
MD5 has it at the end. DXC's source has it in `lib/DxilHash`, as `ComputeHashRetail`. DXC writes it
on Windows; elsewhere it leaves zeros.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from dmlc.shader_model import is_signed

_FIRST = 20
"""Offset of the hashed data, after the magic number and the checksum."""
_BLOCK = 64
_WORD = 0xFFFFFFFF
_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_SINES = tuple(int(abs(math.sin(i + 1)) * 2**32) for i in range(64))
_TURNS = tuple(t for turns in ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
               for t in turns * 4)  # fmt: skip
_WORDS = tuple((a * i + b) % 16 for a, b in ((1, 0), (5, 1), (3, 5), (7, 0)) for i in range(16))


def sign(container: bytes) -> bytes:
    """Container with its checksum, added if there is none."""
    if is_signed(container):
        return container
    return container[:4] + find_checksum(container) + container[_FIRST:]


def find_checksum(container: bytes) -> bytes:
    """Checksum of a container, in 16 bytes."""
    data = container[_FIRST:]
    whole = len(data) // _BLOCK * _BLOCK
    state = _START
    for start in range(0, whole, _BLOCK):
        state = _add(state, data[start : start + _BLOCK])
    left = data[whole:] + b"\x80"
    bits, end = (
        struct.pack("<I", 8 * len(data) & _WORD),
        struct.pack("<I", 2 * len(data) & _WORD | 1),
    )
    if len(left) > _BLOCK - 8:
        state = _add(state, left.ljust(_BLOCK, b"\0"))
        left = b""
    state = _add(state, bits + left.ljust(_BLOCK - 8, b"\0") + end)
    return struct.pack("<4I", *state)


def _add(state: Sequence[int], block: bytes) -> tuple[int, int, int, int]:
    """State of MD5 after one more block."""
    words = struct.unpack("<16I", block)
    a, b, c, d = state
    for i in range(64):
        if i < 16:
            mixed = d ^ (b & (c ^ d))
        elif i < 32:
            mixed = c ^ (d & (b ^ c))
        elif i < 48:
            mixed = b ^ c ^ d
        else:
            mixed = c ^ (b | (d ^ _WORD))
        total = (a + mixed + _SINES[i] + words[_WORDS[i]]) & _WORD
        turned = total << _TURNS[i] | total >> (32 - _TURNS[i])
        a, d, c, b = d, c, b, (b + turned) & _WORD
    p, q, r, s = state
    return (p + a) & _WORD, (q + b) & _WORD, (r + c) & _WORD, (s + d) & _WORD
