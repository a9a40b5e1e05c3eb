"""Operators of a user's own, for the tests of padding rules, and a model of them."""

from __future__ import annotations

from typing import Any

import torch

LIBRARY = torch.library.Library("nctest", "DEF")  # noqa: TOR901 (lives as long as the process)


def define(schema: str, function: Any, fake: Any = None, backward: Any = None, setup: Any = None) -> str:
    name = "nctest::" + schema.partition("(")[0]
    LIBRARY.define(schema)
    torch.library.impl(name, "CompositeExplicitAutograd", lib=LIBRARY)(function)
    torch.library.register_fake(name, fake or function, lib=LIBRARY)
    if backward is not None:
        torch.library.register_autograd(name, backward, setup_context=setup, lib=LIBRARY)
    return name


def swish_backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    return torch.ops.nctest.swish_gradient(gradient, x)


def keep_inputs(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*(value for value in inputs if isinstance(value, torch.Tensor)))


def swish_gradient(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    gate = x.sigmoid()
    return gradient * (gate + x * gate * (1 - gate))


define("swish_gradient(Tensor gradient, Tensor x) -> Tensor", swish_gradient)
define("swish(Tensor x) -> Tensor", lambda x: x * x.sigmoid(), None, swish_backward, keep_inputs)
define(
    "project(Tensor x, Tensor weight) -> Tensor",
    lambda x, weight: x @ weight,
    None,
    lambda ctx, gradient: (
        gradient @ ctx.saved_tensors[1].T,
        ctx.saved_tensors[0].flatten(0, -2).T @ gradient.flatten(0, -2),
    ),
    keep_inputs,
)
define("standing(Tensor x) -> (Tensor, Tensor)", lambda x: (x.softmax(-1), x.logsumexp(-1)))
define("centred(Tensor x) -> Tensor", lambda x: x - x.mean(0, keepdim=True))
define("waves(Tensor x) -> Tensor", torch.cos)
define("pick(Tensor table, Tensor index) -> Tensor", lambda table, index: table[index])
define("totals(Tensor x) -> Tensor", lambda x: x.sum(0))
define("two.one(Tensor x) -> Tensor", torch.cos)
LIBRARY.define("two.other(Tensor x, Tensor y) -> Tensor")
LIBRARY.define("change(Tensor(a!) x) -> ()")


X = torch.randn(3, 4, dtype=torch.float64)
WEIGHT = torch.randn(4, 5, dtype=torch.float64)


class Model(torch.nn.Module):
    """Rows of a batch of sequences by operators of the user's own, and a masked mean over them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 5, dtype=torch.float64))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = torch.ops.nctest.swish(torch.nn.functional.linear(x, self.weight.T) + 1)
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
