"""`torch.vmap` over a registered operator.

An element-wise operator takes a batch as more elements, in one call. Any other operator is called
once per sample, as its tables do not say which axis is the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from dmlc.torch.registered import Registered
from dmlc.torch.tensors import data_type_of


def make_batching_rule(made: Registered[Any]) -> Callable[..., tuple[Any, Any]]:
    """Rule for `torch.library.register_vmap`."""

    def run(info: Any, in_dims: Sequence[Any], *args: Any, **settings: Any) -> tuple[Any, Any]:
        batch: int = info.batch_size
        joined = _join(made, batch, in_dims, args, settings)
        if joined is not None:
            found = made.op(*joined, **settings)
            single = _rank(in_dims, args) == 0
            results = [t if single else _split(t, batch) for t in _list(found)]
        else:
            calls = [
                _list(made.op(*(_pick(t, d, k) for t, d in zip(args, in_dims, strict=True)),
                              **settings))
                for k in range(batch)
            ]  # fmt: skip
            results = [torch.stack(each) for each in zip(*calls, strict=True)]
        return (results[0], 0) if len(results) == 1 else (tuple(results), (0,) * len(results))

    return run


def _split(tensor: torch.Tensor, batch: int) -> torch.Tensor:
    shape = tensor.shape
    return tensor.reshape(batch, shape[0] // batch, *shape[1:])


def _list(found: Any) -> list[torch.Tensor]:
    return [found] if isinstance(found, torch.Tensor) else list(found)


def _pick(given: Any, dim: Any, number: int) -> Any:
    """Input for one sample of the batch."""
    if isinstance(given, list):
        tensors = cast("list[torch.Tensor]", given)
        return [_pick(t, d, number) for t, d in zip(tensors, dim, strict=True)]
    return given if given is None or dim is None else given.select(dim, number)


def _rank(in_dims: Sequence[Any], args: Sequence[Any]) -> int:
    """Rank of the tensors without the batch dimension, if all have the same."""
    tensors = [(t, d) for t, d in zip(args, in_dims, strict=True) if t is not None]
    return next(t.dim() - (d is not None) for t, d in tensors)


def _join(
    made: Registered[Any],
    batch: int,
    in_dims: Sequence[Any],
    args: Sequence[Any],
    settings: Mapping[str, Any],
) -> list[Any] | None:
    """Arguments with the batch merged into the first dimension, for element-wise operators; None
    for others."""
    pairs = list(zip(args, in_dims, strict=True))
    if any(isinstance(t, list) for t in args) or any(name.endswith("_sizes") for name in settings):
        return None
    facts = {
        row.name: None if t is None else (data_type_of(t.dtype), _sample(t, d))
        for row, (t, d) in zip(made.inputs, pairs, strict=False)
    }
    shapes = {fact[1] for fact in facts.values() if fact is not None}
    if len(shapes) != 1 or batch == 0 or not made.is_elementwise(facts, settings):
        return None
    (shape,) = shapes
    joined: list[Any] = []
    for tensor, dim in pairs:
        if tensor is None:
            joined.append(None)
            continue
        first = tensor.expand(batch, *shape) if dim is None else tensor.movedim(dim, 0)
        joined.append(first.flatten(0, 1) if shape else first)
    return joined


def _sample(tensor: torch.Tensor, dim: int | None) -> tuple[int, ...]:
    """Sizes of one sample's input."""
    shape = list(tensor.shape)
    if dim is not None:
        del shape[dim]
    return tuple(shape)
