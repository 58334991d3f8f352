"""Memory layout of results: that of their inputs, if it is worth keeping."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def make_result(
    inputs: Sequence[torch.Tensor],
    sizes: Sequence[int],
    dtype: torch.dtype,
    device: torch.device | str,
) -> torch.Tensor:
    """Result of these sizes: channels last if an input of the same rank is; else with the strides
    of an unpacked input of the same sizes; else packed."""
    rank = len(sizes)
    odd = [t for t in inputs if t.dim() == rank and not t.is_contiguous()]
    if rank in _FORMATS:
        last = _FORMATS[rank]
        if any(t.is_contiguous(memory_format=last) for t in odd):
            return torch.empty(tuple(sizes), dtype=dtype, device=device, memory_format=last)
    for tensor in odd:
        if tuple(tensor.shape) == tuple(sizes):
            return torch.empty_like(tensor, dtype=dtype, device=device)
    return torch.empty(tuple(sizes), dtype=dtype, device=device)


def is_dense(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors have the same layout in memory, without gaps or repeated elements, so that
    their elements correspond one to one in memory order."""
    first = tensors[0]
    shape, strides = first.shape, first.stride()
    if any(t.shape != shape or t.stride() != strides for t in tensors):
        return False
    step = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True
