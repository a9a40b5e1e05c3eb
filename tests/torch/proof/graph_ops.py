"""The operations that random graphs are made of: each with what it needs of its operands, at any sizes.

`OPS` maps a name to an `Op`. `choose` picks parameters for operands of given shapes, or None where it does not apply;
`function(parameters, *operands)` computes. Parameters are plain numbers, so that a graph can be stored as text.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

H = 4
CLASSES = 4

Shape = tuple[int, ...]
Parameters = list[Any]


@dataclass(frozen=True)
class Op:
    """`kinds`: one letter per operand, f(loat), i(nteger), b(ool), w(eight [H, H]), v(ector [H]). `smooth`: False where equal
    or nearly equal elements decide something, so that operands must be away from zero and from each other."""

    kinds: str
    choose: Callable[[random.Random, Sequence[Shape]], Parameters | None]
    function: Callable[..., Any]
    smooth: bool = True


OPS: dict[str, Op] = {}


def _none(rng: random.Random, shapes: Sequence[Shape]) -> Parameters | None:
    return []


def _dim(rng: random.Random, shapes: Sequence[Shape]) -> Parameters | None:
    return [rng.randrange(len(shapes[0]))] if shapes[0] else None


def _long_dim(rng: random.Random, shapes: Sequence[Shape]) -> Parameters | None:
    dims = [dim for dim, size in enumerate(shapes[0]) if size >= 3]
    return [rng.choice(dims)] if dims else None


def _dim_keep(rng: random.Random, shapes: Sequence[Shape]) -> Parameters | None:
    return [rng.randrange(len(shapes[0])), rng.random() < 0.5] if shapes[0] else None


def _number(rng: random.Random, shapes: Sequence[Shape]) -> Parameters | None:
    return [rng.choice([-1.5, 0.5, 2.0, 3.0])]


def _two_dims(rng: random.Random, shapes: Sequence[Shape]) -> Parameters | None:
    return sorted(rng.sample(range(len(shapes[0])), 2)) if len(shapes[0]) >= 2 else None


def _last_is(size: int, rank: int = 1) -> Callable[[random.Random, Sequence[Shape]], Parameters | None]:
    def choose(rng: random.Random, shapes: Sequence[Shape]) -> Parameters | None:
        return [] if len(shapes[0]) >= rank and shapes[0][-1] == size else None

    return choose


def _same(rng: random.Random, shapes: Sequence[Shape]) -> Parameters | None:
    return [] if shapes[0] == shapes[1] else None


def _rank(rank: int) -> Callable[[random.Random, Sequence[Shape]], Parameters | None]:
    return lambda rng, shapes: [] if len(shapes[0]) == rank else None


def _along(x: torch.Tensor, dim: int, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """`function` of the first dimension, applied to `dim`; a result of one dimension less has lost it."""
    result = function(x.transpose(0, dim))
    return result if result.dim() < x.dim() else result.transpose(0, dim)


def _tail_assigned(x: torch.Tensor) -> torch.Tensor:
    result, half = torch.ones_like(x), x.shape[0] // 2
    result[-half:] = x[:half]
    return result


def _chunks(x: torch.Tensor) -> torch.Tensor:
    """Sums up to each position, within chunks of four."""
    missing = -x.shape[0] % 4
    padded = torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
    return padded.reshape(-1, 4, *x.shape[1:]).cumsum(1).flatten(0, 1)[: x.shape[0]]


def op(name: str, kinds: str, choose: Any, function: Callable[..., Any], smooth: bool = True) -> None:
    OPS[name] = Op(kinds, choose, function, smooth)


for _name, _function in {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "silu": F.silu,
    "neg": torch.neg,
    "sin": torch.sin,
    "cos": torch.cos,
    "square": lambda x: torch.tanh(x) ** 2,
    "exp": lambda x: torch.exp(torch.tanh(x)),
    "log": lambda x: torch.log(x * x + 0.5),
    "sqrt": lambda x: torch.sqrt(x * x + 0.1),
    "rsqrt": lambda x: torch.rsqrt(x * x + 0.1),
    "reciprocal": lambda x: torch.reciprocal(x * x + 0.5),
    "softplus": F.softplus,
    "atan": torch.atan,
    "erf": torch.erf,
    "log_sigmoid": F.logsigmoid,
}.items():
    op(_name, "f", _none, lambda p, x, _function=_function: _function(x))
for _name, _function in {
    "relu": torch.relu,
    "abs": torch.abs,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "clamp": lambda x: x.clamp(-1.03, 0.97),
}.items():
    op(_name, "f", _none, lambda p, x, _function=_function: _function(x), smooth=False)

op("add_number", "f", _number, lambda p, x: x + p[0])
op("mul_number", "f", _number, lambda p, x: x * p[0])
op("rsub_number", "f", _number, lambda p, x: p[0] - x)
op("div_number", "f", _number, lambda p, x: x / p[0])
op("mul_size", "f", _dim, lambda p, x: x * x.shape[p[0]] / 8)
op("div_size", "f", _dim, lambda p, x: x / x.shape[p[0]])
op("add_size", "f", _dim, lambda p, x: x + (x.shape[p[0]] - 1))
op("add", "ff", _none, lambda p, x, y: x + y)
op("sub", "ff", _none, lambda p, x, y: x - y)
op("mul", "ff", _none, lambda p, x, y: x * torch.tanh(y))
op("div", "ff", _none, lambda p, x, y: x / (y * y + 1))
op("addcmul", "fff", _none, lambda p, x, y, z: torch.addcmul(x, y.tanh(), z.tanh(), value=0.5))
op("maximum", "ff", _none, lambda p, x, y: torch.maximum(x, y + 0.0137), smooth=False)
op("minimum", "ff", _none, lambda p, x, y: torch.minimum(x, y - 0.0137), smooth=False)
op("lerp", "ff", _none, lambda p, x, y: torch.lerp(x, y, 0.3))
op("greater", "f", _none, lambda p, x: x > 0.0171, smooth=False)
op("less", "ff", _none, lambda p, x, y: x < y + 0.0171, smooth=False)
op("not", "b", _none, lambda p, x: ~x)
op("and", "bb", _none, lambda p, x, y: x & y)
op("or", "bb", _none, lambda p, x, y: x | y)
op("where", "bff", _none, lambda p, m, x, y: torch.where(m, x, y))
op("masked_fill", "fb", _none, lambda p, x, m: x.masked_fill(m.expand_as(x), 0.25))
op("mask_softmax", "fb", _none, lambda p, x, m: torch.softmax(x.masked_fill(m.expand_as(x), -1e9), -1))
op("to_float", "b", _none, lambda p, m: m.double())
op("any", "b", _dim_keep, lambda p, m: m.any(*p))
op("all", "b", _dim_keep, lambda p, m: m.all(*p))

op("sum", "f", _dim_keep, lambda p, x: x.sum(*p) / 4)
op("mean", "f", _dim_keep, lambda p, x: x.mean(*p))
op("sum_all", "f", _none, lambda p, x: x.sum() / 8)
op("mean_two", "f", _two_dims, lambda p, x: x.mean(p))
op("amax", "f", _dim_keep, lambda p, x: x.amax(*p), smooth=False)
op("amin", "f", _dim_keep, lambda p, x: x.amin(*p), smooth=False)
op("max_values", "f", _dim, lambda p, x: x.max(p[0])[0], smooth=False)
op("argmax", "f", _dim, lambda p, x: x.argmax(p[0]), smooth=False)
op("var", "f", _long_dim, lambda p, x: x.var(p[0]))
op("std", "f", _long_dim, lambda p, x: (x.var(p[0], correction=0, keepdim=True) + 0.1).sqrt())
op("logsumexp", "f", _dim_keep, lambda p, x: x.logsumexp(*p))
op("norm", "f", _dim, lambda p, x: torch.linalg.vector_norm(torch.cat([x, x + 1], p[0]), dim=p[0]))
op("prod", "f", _dim, lambda p, x: (torch.tanh(x) + 1.5).prod(p[0]).tanh())
op("softmax", "f", _dim, lambda p, x: torch.softmax(x, p[0]))
op("log_softmax", "f", _dim, lambda p, x: torch.log_softmax(x, p[0]))
op("cumsum", "f", _dim, lambda p, x: x.cumsum(p[0]) / 2)
op("logcumsumexp", "f", _dim, lambda p, x: x.logcumsumexp(p[0]))
op("cummax", "f", _dim, lambda p, x: x.cummax(p[0])[0], smooth=False)
op("sort", "f", _dim, lambda p, x: x.sort(p[0])[0], smooth=False)
op("topk", "f", _long_dim, lambda p, x: x.topk(2, p[0])[0], smooth=False)
op("normalize", "f", _dim, lambda p, x: x / (x * x).mean(p[0], keepdim=True).add(0.1).sqrt())

op("transpose", "f", _two_dims, lambda p, x: x.transpose(*p))
op(
    "unsqueeze",
    "f",
    lambda r, s: [r.randrange(len(s[0]) + 1)] if len(s[0]) < 4 else None,
    lambda p, x: x.unsqueeze(p[0]),
)
op("flatten", "f", _two_dims, lambda p, x: x.flatten(p[0], p[0] + 1))
op("flatten_all", "f", lambda r, s: [] if len(s[0]) >= 2 else None, lambda p, x: x.flatten())
op("split_heads", "f", _last_is(H, 2), lambda p, x: x.unflatten(-1, (2, 2)).transpose(-2, -3))
op("reshape_as", "ff", _none, lambda p, x, y: x.reshape(y.shape))
op("expand_as", "ff", _none, lambda p, x, y: x.expand_as(y))
op("flip", "f", _dim, lambda p, x: x.flip(p[0]))
op("roll", "f", _dim, lambda p, x: x.roll(1, p[0]))
op("select_last", "f", _dim, lambda p, x: x.select(p[0], -1))
op("select_first", "f", _dim, lambda p, x: x.select(p[0], 0))
op("drop_first", "f", _long_dim, lambda p, x: x.narrow(p[0], 1, x.shape[p[0]] - 1))
op("drop_last", "f", _long_dim, lambda p, x: x.narrow(p[0], 0, x.shape[p[0]] - 1))
op("last_two", "f", _long_dim, lambda p, x: x.narrow(p[0], x.shape[p[0]] - 2, 2))
op("first_two", "f", _long_dim, lambda p, x: x.narrow(p[0], 0, 2))
op("half", "f", _long_dim, lambda p, x: x.narrow(p[0], 0, x.shape[p[0]] // 2))
op("tail", "f", _long_dim, lambda p, x: _along(x, p[0], lambda v: v[-(v.shape[0] // 2) :]))
op("all_but_tail", "f", _long_dim, lambda p, x: _along(x, p[0], lambda v: v[: -(v.shape[0] // 2)]))
op("middle", "f", _long_dim, lambda p, x: _along(x, p[0], lambda v: v[v.shape[0] // 2]))
op("from_middle", "f", _long_dim, lambda p, x: _along(x, p[0], lambda v: v[v.shape[0] // 2 :]))
op("second_half", "f", _long_dim, lambda p, x: x.chunk(2, p[0])[-1])
op("roll_half", "f", _long_dim, lambda p, x: x.roll(x.shape[p[0]] // 2, p[0]))
op("diff", "f", _long_dim, lambda p, x: x.diff(dim=p[0]))
op("tail_assign", "f", _long_dim, lambda p, x: _along(x, p[0], _tail_assigned))
op("chunks", "f", _dim, lambda p, x: _along(x, p[0], _chunks))
op("strided", "f", _long_dim, lambda p, x: x.transpose(0, p[0])[::2].transpose(0, p[0]))
op("pad", "f", _dim, lambda p, x: torch.constant_pad_nd(x.transpose(p[0], -1), [1, 2], 0.5).transpose(p[0], -1))
op("repeat", "f", _dim, lambda p, x: torch.cat([x, x.flip(p[0])], p[0]))
op("repeat_interleave", "f", _dim, lambda p, x: x.repeat_interleave(2, p[0]))
op("cat", "ff", _dim, lambda p, x, y: torch.cat([x, y], p[0]))
op(
    "stack",
    "ff",
    lambda r, s: _same(r, s) if len(s[0]) < 4 else None,
    lambda p, x, y: torch.stack([x, y], 1 if x.dim() else 0),
)
op("chunk", "f", _last_is(H), lambda p, x: torch.mul(*x.chunk(2, -1)))
op("reverse_index", "f", _dim, lambda p, x: x.index_select(p[0], torch.arange(x.shape[p[0]] - 1, -1, -1)))
op("positions", "f", _dim, lambda p, x: x.transpose(p[0], -1) + torch.arange(x.shape[p[0]]) / 8)
op("tril", "f", lambda r, s: [] if len(s[0]) >= 2 else None, lambda p, x: x.tril())
op("triu", "f", lambda r, s: [] if len(s[0]) >= 2 else None, lambda p, x: x.triu(1))
op(
    "slice_assign",
    "f",
    _long_dim,
    lambda p, x: torch.zeros_like(x).slice_scatter(x.narrow(p[0], 1, x.shape[p[0]] - 1), p[0], 0, x.shape[p[0]] - 1),
)

op("matmul_weight", "fw", _last_is(H), lambda p, x, w: x @ w)
op("linear", "fwv", _last_is(H), lambda p, x, w, v: F.linear(x, w, v))
op("scores", "ff", _rank(3), lambda p, x, y: x @ y.transpose(1, 2) / 4)
op("matmul", "ff", lambda r, s: [] if len(s[0]) >= 2 else None, lambda p, x, y: x @ y / 4)
op("gram", "f", _rank(2), lambda p, x: x.t() @ x / 8)
op("layer_norm", "fv", _last_is(H), lambda p, x, v: F.layer_norm(x, (H,), v))
op("rms_norm", "fv", _last_is(H), lambda p, x, v: F.rms_norm(x, (H,), v, 1e-3))
op(
    "batch_norm",
    "f",
    _rank(3),
    lambda p, x: F.batch_norm(x.transpose(1, 2), None, None, training=True, eps=0.1).transpose(1, 2),
)
op("attention", "f", _last_is(H, 3), lambda p, x: _attention(x, False))
op("attention_causal", "f", _last_is(H, 3), lambda p, x: _attention(x, True))
op("conv1d", "fw", _last_is(H, 3), lambda p, x, w: _conv(x, w))
op(
    "avg_pool",
    "f",
    lambda r, s: [] if len(s[0]) == 3 and s[0][1] >= 2 else None,
    lambda p, x: F.avg_pool1d(x.transpose(1, 2), 2).transpose(1, 2),
)

op("labels_add", "i", _number, lambda p, y: (y + 1) % CLASSES)
op("labels_where", "ib", _none, lambda p, y, m: torch.where(m, y, y.new_zeros(()) + 1) % CLASSES)
op("one_hot", "i", _none, lambda p, y: F.one_hot(y % CLASSES, CLASSES).double())
op("embedding", "iw", _none, lambda p, y, w: F.embedding(y % CLASSES, w))
op("gather_label", "fi", _last_is(H), lambda p, x, y: x.gather(-1, (y % H).unsqueeze(-1)).squeeze(-1))
op("equal", "i", _number, lambda p, y: y == abs(int(p[0])))
op("labels_float", "i", _none, lambda p, y: (y % CLASSES).double() / 4)
op("cross_entropy", "fi", _last_is(H, 2), lambda p, x, y: F.cross_entropy(x.reshape(-1, H), (y % H).reshape(-1)))
op(
    "cross_entropy_ignore",
    "fi",
    _last_is(H, 2),
    lambda p, x, y: F.cross_entropy(x.reshape(-1, H), (y % H).reshape(-1), ignore_index=1, reduction="sum") / 8,
)
op("scatter_add", "fi", _none, lambda p, x, y: torch.zeros(x.shape, dtype=x.dtype).scatter_add(-1, y % x.shape[-1], x))
op("index_rows", "fi", _none, lambda p, x, y: x[y % 2])


def _attention(x: torch.Tensor, causal: bool) -> torch.Tensor:
    if x.dim() == 3:
        x = x.unsqueeze(1)
    return F.scaled_dot_product_attention(x, x.tanh(), x, is_causal=causal)


def _conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    kernel = torch.stack([w, w.t(), w * 0.5], -1)
    return F.conv1d(x.transpose(1, 2), kernel, padding=1).transpose(1, 2)
