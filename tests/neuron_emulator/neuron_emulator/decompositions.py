"""Operators that torch-mlir or IREE have no form for, in terms of those they have."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


@functools.cache
def table() -> dict[Any, Callable[..., Any]]:
    """For AOTAutograd."""
    from torch._decomp import core_aten_decompositions
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    return {
        **core_aten_decompositions(),
        **get_decomposition_table(),
        aten.squeeze.dims: squeeze_dims,
        aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
        aten.convolution_backward.default: convolution_backward,
        aten.topk.default: topk,
        aten.sort.stable: sort_stable,
    }


def squeeze_dims(x: Tensor, dims: Sequence[int]) -> Tensor:
    gone = {dim % x.dim() for dim in dims} if x.dim() else set()
    return x.reshape([size for dim, size in enumerate(x.shape) if dim not in gone or size != 1])


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """By sorting upwards: IREE makes of a descending sort that is cut its own top-k, which it then has no indices of 64 bits for."""
    values, indices = aten.sort.default(-x if largest else x, dim, False)
    values, indices = values.narrow(dim, 0, k), indices.narrow(dim, 0, k)
    return (-values if largest else values), indices


def sort_stable(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = aten.sort.default(x, dim, descending)
    return result


# -- attention --------------------------------------------------------------------------------------------------------


def _scores(query: Tensor, key: Tensor, causal: bool, mask: Tensor | None, scale: float) -> Tensor:
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale
    if causal:
        rows = torch.arange(query.shape[-2], device=query.device).unsqueeze(-1)
        columns = torch.arange(key.shape[-2], device=query.device)
        mask = columns <= rows
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return torch.where(mask, scores, torch.full((), -math.inf, dtype=scores.dtype, device=scores.device))
    return scores + mask


def _wide(*tensors: Tensor) -> list[Tensor]:
    return [one.to(torch.promote_types(one.dtype, torch.float32)) for one in tensors]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """With the logarithm of the sums, which the backward operator wants. A row that may look nowhere gives zeros."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = _wide(query, key, value)
    scores = _scores(wide[0], wide[1], is_causal, attn_mask, scale)
    most = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    powers = (scores - most).exp()
    total = powers.sum(-1, keepdim=True)
    result = torch.matmul(powers / torch.where(total > 0, total, torch.ones_like(total)), wide[2])
    return result.to(query.dtype), (total.log() + most).squeeze(-1)


def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    grad, q, k, v, out = _wide(grad, query, key, value, out)
    scores = _scores(q, k, is_causal, attn_mask, scale)
    sums = logsumexp.unsqueeze(-1)
    weights = (scores - torch.where(sums == -math.inf, torch.zeros_like(sums), sums)).exp()
    inner = torch.matmul(grad, v.transpose(-1, -2)) - (grad * out).sum(-1, keepdim=True)
    slope = weights * inner * scale
    turned = slope.transpose(-1, -2)
    grads = torch.matmul(slope, k), torch.matmul(turned, q), torch.matmul(weights.transpose(-1, -2), grad)
    return grads[0].to(query.dtype), grads[1].to(key.dtype), grads[2].to(value.dtype)


# -- convolution ------------------------------------------------------------------------------------------------------


def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    dims = range(x.dim() - 2)
    kernel = weight.shape[2:]
    numbers = [_per_dim(one, len(dims)) for one in (stride, padding, dilation)]
    strides, paddings, dilations = numbers
    grads: list[Tensor | None] = [None, None, None]
    if output_mask[0]:
        reach = [
            (grad.shape[2 + d] - 1) * strides[d] - 2 * paddings[d] + dilations[d] * (kernel[d] - 1) + 1 for d in dims
        ]
        missing = [0 if transposed else x.shape[2 + d] - reach[d] for d in dims]
        grads[0] = aten.convolution.default(
            grad, weight, None, strides, paddings, dilations, not transposed, missing, groups
        )
        for d in dims:
            grads[0] = grads[0].narrow(2 + d, 0, x.shape[2 + d])
    if output_mask[1]:
        below, above = (grad, x) if transposed else (x, grad)
        grads[1] = _weight_gradient(below, above, kernel, strides, paddings, dilations, groups)
    if output_mask[2]:
        grads[2] = grad.sum([0, *(2 + d for d in dims)])
    return grads[0], grads[1], grads[2]


def _per_dim(numbers: Sequence[int], count: int) -> list[int]:
    return list(numbers) * count if len(numbers) == 1 else list(numbers)


def _weight_gradient(
    below: Tensor,
    above: Tensor,
    kernel: Sequence[int],
    strides: list[int],
    paddings: list[int],
    dilations: list[int],
    groups: int,
) -> Tensor:
    """Of a convolution from `below` to `above`: one again, of the same tensors with batch and channels exchanged, in which
    what was the distance of the kernel's places is that of the windows, and the other way round."""
    batch, rest = below.shape[0], list(range(3, below.dim() + 1))
    images = below.unflatten(1, (groups, below.shape[1] // groups)).permute(2, 1, 0, *rest).flatten(1, 2)
    kernels = above.transpose(0, 1)
    assert images.shape[1] == groups * batch
    result = aten.convolution.default(
        images, kernels, None, dilations, paddings, strides, False, [0] * len(kernel), groups
    )
    for d, size in enumerate(kernel):
        result = result.narrow(2 + d, 0, size)
    return result.transpose(0, 1)
