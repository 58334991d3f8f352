"""Decompositions of PyTorch's operators into others.

An operator is decomposed before a graph is partitioned if eager mode calls it no faster than its
parts. The rest stay whole in the graph, since eager has a kernel for each: a group decomposes them
for itself, and if eager computes the group faster, it calls that kernel. Compared with calls of the
parts, a group could seem to pay where it does not. Resampling stays whole as well: PyTorch would
trace it as gathers, and its gradient as scatters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import _decomp

from dmlc.source import UnsupportedError
from dmlc.torch.attention import ATTENTION

aten = torch.ops.aten

_TAKEN_APART = (
    # Normalization of batches by given statistics, and forms that no trace of the CPU has.
    aten.native_batch_norm, aten._native_batch_norm_legit,
    aten._native_batch_norm_legit_no_training, aten._batch_norm_with_update,
    aten._batch_norm_with_update_functional, aten.batch_norm_backward,
    # Arithmetic.
    aten.addcmul, aten.addcdiv, aten.lerp, aten.masked_fill, aten.nan_to_num, aten.square,
    aten.logaddexp, aten.xlogy, aten.sgn, aten.std, aten.std_mean,
    aten.norm, aten.count_nonzero, aten.rsub, aten.native_dropout_backward,
    aten.relu6, aten.celu, aten.selu, aten.threshold,
    # Moving elements.
    aten.select_backward, aten.slice_backward, aten.stack, aten.tril, aten.triu, aten.pixel_shuffle,
    aten.pixel_unshuffle, aten.roll, aten.zero, aten.t, aten.transpose, aten.unbind, aten.split,
    aten.split_with_sizes, aten.unsafe_split, aten.unsafe_split_with_sizes, aten.eye,
    aten.diag_embed, aten.detach,
)  # fmt: skip

_KEPT_WHOLE = (
    # Normalization and softmax.
    aten._native_batch_norm_legit_functional, aten.native_batch_norm_backward,
    aten.native_layer_norm, aten.native_layer_norm_backward,
    aten.native_group_norm, aten.native_group_norm_backward,
    aten._fused_rms_norm, aten._fused_rms_norm_backward,
    aten._softmax, aten._softmax_backward_data, aten._log_softmax,
    aten._log_softmax_backward_data, aten.logsumexp,
    # Activations.
    aten.gelu, aten.gelu_backward, aten.silu, aten.silu_backward, aten.sigmoid_backward,
    aten.tanh_backward, aten.threshold_backward, aten.leaky_relu_backward,
    aten.hardtanh_backward, aten.hardsigmoid, aten.hardsigmoid_backward, aten.hardswish,
    aten.hardswish_backward, aten.elu, aten.elu_backward, aten.softplus, aten.softplus_backward,
    aten.mish, aten.mish_backward, aten.log_sigmoid_forward, aten.log_sigmoid_backward,
    aten._prelu_kernel, aten._prelu_kernel_backward, aten.glu, aten.glu_backward,
    aten.leaky_relu, aten.hardtanh,
    # Arithmetic and products.
    aten.clamp_min, aten.clamp_max, aten.logical_not, aten.logical_and, aten.logical_or,
    aten.logical_xor, aten.addmm, aten.baddbmm,
    # Moving elements.
    aten.embedding, aten.index_select, aten.select_scatter,
    # Losses.
    aten.nll_loss_forward, aten.nll_loss_backward, aten.nll_loss2d_forward,
    aten.nll_loss2d_backward, aten.mse_loss, aten.mse_loss_backward, aten.smooth_l1_loss,
    aten.smooth_l1_loss_backward, aten.huber_loss, aten.huber_loss_backward,
    aten.binary_cross_entropy, aten.binary_cross_entropy_backward,
    aten.binary_cross_entropy_with_logits, aten.soft_margin_loss,
)  # fmt: skip


def _find_variance(
    x: torch.Tensor,
    axes: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Variance and mean, the latter taken off before squares are summed."""
    listed = list(axes or range(x.dim()))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = wide.mean(listed, keepdim=True)
    divisor = x.numel() // mean.numel() - (1 if correction is None else correction)
    apart = wide - mean
    variance = (apart * apart).sum(listed, keepdim=True) / max(divisor, 0)
    found = variance.to(x.dtype), mean.to(x.dtype)
    return found if keepdim else (found[0].squeeze(listed), found[1].squeeze(listed))


def _find_variance_alone(x: torch.Tensor, axes: Any = None, **settings: Any) -> torch.Tensor:
    return _find_variance(x, axes, **settings)[0]


def _scatter_one(x: torch.Tensor, axis: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    """Scatter of a number to one place along an axis."""
    sizes = [1] * x.dim()
    sizes[axis] = -1
    if index.shape != x.select(axis, 0).unsqueeze(axis).shape:
        raise UnsupportedError("only a scatter of one element along its axis is mapped")
    return torch.where(torch.arange(x.shape[axis]).view(sizes) == index, value, x)


def _embed_backward(
    gradient: torch.Tensor, index: torch.Tensor, rows: int, padding: int, by_frequency: bool
) -> torch.Tensor:
    """The gradient of an embedding's rows: sums over the indices that name each."""
    if by_frequency:
        raise UnsupportedError("gradients that are divided by how often a row is read")
    kept = gradient
    if padding >= 0:
        kept = torch.where((index == padding).unsqueeze(-1), 0, gradient)
    made = gradient.new_zeros(rows, gradient.shape[-1])
    return made.index_put([index], kept, accumulate=True)


_table: Any = _decomp
COMPOSITES: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        **_table.get_decompositions(_KEPT_WHOLE),
        **ATTENTION,
        aten.var.correction: _find_variance_alone,
        aten.var_mean.correction: _find_variance,
        aten.scatter.value: _scatter_one,
        aten.embedding_dense_backward.default: _embed_backward,
    }
)
"""The definition, by other operators, of each operator that a group takes apart."""


def list_decompositions() -> dict[Any, Callable[..., Any]]:
    """Decompositions for graphs: PyTorch's own, except for dropout, whose decomposition there draws
    other random numbers than eager."""
    found = dict(_table.get_decompositions(_TAKEN_APART))
    return found | {aten.native_dropout.default: _drop_out}


def _drop_out(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Dropout as the operator that draws the random numbers of eager, and a product with its
    result."""
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = torch.ops.aten.bernoulli.p(torch.empty_like(x, dtype=torch.bool), 1 - p)
    return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept


# Resampling -----------------------------------------------------------------------------------

RESAMPLING = (
    aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d,
    aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d,
    aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d,
    aten.upsample_bicubic2d,
)  # fmt: skip
"""What `torch.nn.functional.interpolate` calls, but where it smooths as well."""

_sizes_of: Callable[..., Any] = _table.decompositions.upsample_compute_output_size


def list_definitions() -> dict[Any, Callable[..., Any] | None]:
    """Definitions for tracing, in place of those that PyTorch uses in every trace; None keeps the
    operator whole."""
    found: dict[Any, Callable[..., Any] | None] = {each.default: None for each in RESAMPLING}
    return found | {each.vec: functools.partial(_resample, each.default) for each in RESAMPLING}


def _resample(operator: Any, x: torch.Tensor, sizes: Any, *settings: Any) -> torch.Tensor:
    """Call of an overload that takes a list of scales by the overload that takes one scale per
    axis."""
    *others, scales = settings
    made = _sizes_of(x.size(), sizes, scales)
    return operator(x, made, *others, *(scales or [None] * len(made)))
