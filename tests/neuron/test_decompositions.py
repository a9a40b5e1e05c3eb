"""The decompositions of the emulated backend, against PyTorch's own operators, and that they can be lowered."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from neuron_emulator import decompositions
from test_backend import check, lowered
from torch import nn

aten = torch.ops.aten


def sizes(dims: int, transposed: bool, groups: int) -> tuple[list[int], list[int]]:
    """Of an input and of a weight with 4 channels on the one side and 6 on the other."""
    channels = [4, 6 // groups] if transposed else [6, 4 // groups]
    return [2, 4, *[7, 6, 5][:dims]], [*channels, *[3, 2, 3][:dims]]


CONVOLUTIONS = [
    (dims, stride, padding, dilation, transposed, extra, groups)
    for dims, stride, padding, dilation, groups in [
        (1, 1, 0, 1, 1),
        (1, 2, 1, 1, 1),
        (1, 3, 2, 2, 2),
        (2, 1, 1, 1, 1),
        (2, 2, 1, 1, 2),
        (3, 2, 1, 1, 1),
    ]
    for transposed, extra in [(False, 0), (True, 0), (True, 1)]
    if extra < max(stride, dilation)
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: "-".join(str(int(one)) for one in case))
def test_backward_of_a_convolution(case: tuple[Any, ...]) -> None:
    dims, stride, padding, dilation, transposed, extra, groups = case
    torch.manual_seed(0)
    x, weight = (torch.randn(size, dtype=torch.float64) for size in sizes(dims, transposed, groups))
    numbers = [[one] * dims for one in (stride, padding, dilation)]
    rest = [*numbers, transposed, [extra] * dims, groups]
    grad = torch.randn_like(aten.convolution(x, weight, None, *rest))
    given = [grad, x, weight, [weight.shape[0]], *rest, [True, True, True]]
    expected = aten.convolution_backward(*given)
    torch.testing.assert_close(decompositions.convolution_backward(*given), expected)
    text = lowered(lambda *tensors: decompositions.convolution_backward(*tensors, *given[3:]), grad, x, weight).text
    assert "stablehlo.convolution" in text


def test_a_convolution_trains_as_in_eager_mode() -> None:
    check(nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), torch.randn(3, 2, 9))


@pytest.mark.parametrize("form", ["plain", "causal", "mask", "nowhere"])
def test_attention(form: str) -> None:
    torch.manual_seed(0)
    query, key, value, grad = (torch.randn(2, 2, 5, 8) for _ in range(4))
    mask = None if form in ("plain", "causal") else torch.randn(2, 1, 5, 5)
    if form == "nowhere":
        mask = torch.zeros(2, 1, 5, 5).masked_fill(
            (torch.randn(5, 5) > 0) | (torch.arange(5) == 2).unsqueeze(-1), -torch.inf
        )
    options = {"attn_mask": mask, "scale": 0.3}
    function = aten._scaled_dot_product_flash_attention_for_cpu
    result, sums = function(query, key, value, 0.0, form == "causal", **options)
    mine, my_sums = decompositions.attention(query, key, value, 0.0, form == "causal", **options)
    torch.testing.assert_close(mine, result)
    reached = torch.isfinite(my_sums)
    torch.testing.assert_close(my_sums[reached], sums[reached])
    given = (grad, query, key, value, result, sums, 0.0, form == "causal")
    expected = aten._scaled_dot_product_flash_attention_for_cpu_backward(*given, **options)
    torch.testing.assert_close(
        decompositions.attention_backward(grad, query, key, value, mine, my_sums, 0.0, form == "causal", **options),
        expected,
    )


@pytest.mark.parametrize("largest", [True, False])
def test_top_k_and_squeeze(largest: bool) -> None:
    x = torch.randn(3, 1, 7)
    torch.testing.assert_close(tuple(decompositions.topk(x, 3, -1, largest)), tuple(x.topk(3, -1, largest)))
    assert decompositions.squeeze_dims(x, [0, 1]).shape == (3, 7)
