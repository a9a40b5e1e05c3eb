"""Small functions of x [b, s, H] and labels y [b, s], each with one thing that padding could break.

`CASES` maps a name to a `Case`; `arguments(b, s)` gives the case's inputs at those sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .trace import Dynamic

H = 8
SHAPES = [(3, 5), (2, 7), (5, 9), (4, 8), (6, 3)]


@dataclass(frozen=True)
class Case:
    """`expect`: "bucketed"; "refused" for what has to be refused; "either" for what may be."""

    function: Callable[..., Any]
    arguments: Callable[[int, int], list[Any]]
    dynamic: Sequence[Dynamic]
    expect: str = "bucketed"
    shapes: Sequence[tuple[int, int]] = tuple(SHAPES)


def _x(b: int, s: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * b + s)
    return torch.randn(b, s, H, generator=generator).to(dtype).requires_grad_()


def _y(b: int, s: int) -> torch.Tensor:
    y = torch.randint(0, H, (b, s), generator=torch.Generator().manual_seed(b + s))
    y[:, 2] = -100
    return y


BOTH = [Dynamic(0, 0), Dynamic(0, 1)]
BOTH2 = [*BOTH, Dynamic(1, 0), Dynamic(1, 1)]

CASES: dict[str, Case] = {}


def one(name: str, function: Callable[..., Any], **options: Any) -> None:
    """A function of x alone."""
    CASES[name] = Case(function, lambda b, s: [_x(b, s)], BOTH, **options)


def labelled(name: str, function: Callable[..., Any], **options: Any) -> None:
    """A function of x and labels."""
    CASES[name] = Case(function, lambda b, s: [_x(b, s), _y(b, s)], BOTH2, **options)


def module(name: str, make: Callable[[], nn.Module], call: Callable[..., Any] | None = None, **options: Any) -> None:
    """A module, its parameters and buffers among the arguments, so that all of them are compared."""
    state: dict[str, Any] = {}

    def built() -> nn.Module:
        if "module" not in state:
            torch.manual_seed(0)
            state["module"] = make()
        built_module: nn.Module = state["module"]
        return built_module

    def tensors() -> dict[str, torch.Tensor]:
        return {**dict(built().named_parameters()), **dict(built().named_buffers())}

    def function(x: torch.Tensor, *values: torch.Tensor) -> Any:
        given = dict(zip(tensors(), values, strict=True))
        return torch.func.functional_call(_Called(built(), call), {f"inner.{k}": v for k, v in given.items()}, (x,))

    CASES[name] = Case(
        function,
        lambda b, s: [
            _x(b, s),
            *(value.detach().clone().requires_grad_(value.requires_grad) for value in tensors().values()),
        ],
        BOTH,
        **options,
    )


class _Called(nn.Module):
    def __init__(self, inner: nn.Module, call: Callable[..., Any] | None) -> None:
        super().__init__()
        self.inner = inner
        self.call = call

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x) if self.call is None else self.call(self.inner, x)


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(*x.shape[:2], 2, H // 2).transpose(1, 2)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(H, 16)
        self.second = nn.Linear(16, H)
        self.norm = nn.LayerNorm(H)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.second(F.gelu(self.first(x))) + x)


class Router(nn.Module):
    """Top-2 routing as in the usual mixture of experts: a one-hot mask of experts and a weighted sum."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(H, 4, bias=False)
        self.up = nn.Parameter(torch.randn(4, H, 6) / 3)
        self.down = nn.Parameter(torch.randn(4, 6, H) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, H)
        weights, chosen = torch.topk(F.softmax(self.gate(flat), dim=-1), 2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        mask = F.one_hot(chosen, 4).to(weights.dtype)
        gates = (weights.unsqueeze(-1) * mask).sum(1)
        hidden = torch.einsum("td,edf->etf", flat, self.up).relu()
        out = torch.einsum("etf,efd->etd", hidden, self.down)
        return (out * gates.t().unsqueeze(-1)).sum(0).view_as(x)


class SortedRouter(nn.Module):
    """Tokens sorted by expert over the merged dimension, then put back."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(H, 4, bias=False)
        self.scale = nn.Parameter(torch.randn(4, H))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, H)
        expert = self.gate(flat).argmax(-1)
        order = torch.argsort(expert, stable=True)
        tokens = flat[order] * self.scale[expert[order]]
        back = torch.empty_like(order).scatter(0, order, torch.arange(order.shape[0]))
        return tokens[back].view_as(x)


class Grouped(nn.Module):
    """Experts on sorted tokens by grouped matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(H, 4, bias=False)
        self.weight = nn.Parameter(torch.randn(4, H, H) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, H)
        expert = self.gate(flat).argmax(-1)
        order = torch.argsort(expert, stable=True)
        counts = torch.histc(expert.float(), bins=4, min=0, max=3)
        ends = counts.cumsum(0).to(torch.int32)
        tokens = F.grouped_mm(flat[order].bfloat16(), self.weight.bfloat16(), offs=ends).to(x.dtype)
        return torch.zeros_like(flat).index_add(0, order, tokens).view_as(x)


class Scan(nn.Module):
    """Chunked linear attention: the length is padded to a multiple of four, then split."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, h = x.shape
        more = (4 - s % 4) % 4
        chunks = F.pad(x, (0, 0, 0, more)).reshape(b, -1, 4, h)
        inside = chunks.cumsum(2)
        before = chunks.sum(2).cumsum(1) - chunks.sum(2)
        return (inside + before.unsqueeze(2)).reshape(b, -1, h)[:, :s]


def _alibi(x: torch.Tensor) -> torch.Tensor:
    s = x.shape[1]
    distance = (torch.arange(s)[None, :] - torch.arange(s)[:, None]).clamp(max=0)
    bias = distance[None] * torch.tensor([0.5, 0.25])[:, None, None]
    q = _heads(x)
    return F.scaled_dot_product_attention(q, q, q, attn_mask=bias.to(x.dtype))


def _relative(x: torch.Tensor) -> torch.Tensor:
    s = x.shape[1]
    index = torch.arange(s)[:, None] - torch.arange(s)[None, :] + s
    table = torch.linspace(-1, 1, 65)[index.clamp(0, 64)]
    return (x @ x.transpose(1, 2) + table).softmax(-1) @ x


def _masked_mean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mask = (y >= 0).to(x.dtype).unsqueeze(-1)
    return (x * mask).sum(1) / mask.sum(1).clamp(min=1e-6)


def _decay(x: torch.Tensor) -> torch.Tensor:
    s = x.shape[1]
    gap = torch.arange(s)[:, None] - torch.arange(s)[None, :]
    return torch.where(gap >= 0, 0.9 ** gap.clamp(min=0), torch.zeros(())) @ x


def _window(x: torch.Tensor) -> torch.Tensor:
    s = x.shape[1]
    gap = torch.arange(s)[:, None] - torch.arange(s)[None, :]
    q = _heads(x)
    return F.scaled_dot_product_attention(q, q, q, attn_mask=(gap >= 0) & (gap < 3))


def _padding_mask(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    q = _heads(x)
    return F.scaled_dot_product_attention(q, q, q, attn_mask=(y >= 0)[:, None, None, :])


def _left_padding(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Positions and a causal mask of rows whose padding, by the user, is in front."""
    kept = (y >= 0).flip(1)
    positions = (kept.long().cumsum(-1) - 1).clamp(min=0)
    causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    q = _heads(x + positions[..., None])
    return F.scaled_dot_product_attention(q, q, q, attn_mask=kept[:, None, None, :] & causal)


def _static_cache(x: torch.Tensor) -> torch.Tensor:
    """Keys and values written into a cache of a fixed length."""
    places = torch.arange(x.shape[1])
    cache = _heads(torch.zeros(x.shape[0], 32, H).index_copy(1, places, x))
    return F.scaled_dot_product_attention(_heads(x), cache, cache, attn_mask=torch.arange(32) <= places[:, None])


def _sliced_cache(x: torch.Tensor) -> torch.Tensor:
    cache = torch.zeros(x.shape[0], 32, H)
    cache[:, : x.shape[1]] = x
    return (cache * torch.arange(32)[:, None]).sum(1)


def _growing_cache(x: torch.Tensor) -> torch.Tensor:
    """Keys of earlier steps, then those of this one, for queries of this one."""
    past = x[:, :-1].flip(1)
    keys = torch.cat([past, x], 1)
    q, k = _heads(x), _heads(keys)
    mask = torch.arange(keys.shape[1])[None, :] - past.shape[1] <= torch.arange(x.shape[1])[:, None]
    return F.scaled_dot_product_attention(q, k, k, attn_mask=mask)


def _autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return F.linear(x, torch.ones(4, H) / 8).float().softmax(1)


def _polar(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions as complex numbers."""
    angles = torch.arange(x.shape[1])[:, None] * torch.linspace(0.1, 1, H // 2)
    turned = torch.view_as_complex(x.view(*x.shape[:2], H // 2, 2)) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(2)


def _losses(x: torch.Tensor, y: torch.Tensor) -> Any:
    target = y.clamp(min=0)
    soft = F.one_hot(target, H).to(x.dtype)
    return (
        F.mse_loss(x, soft),
        F.smooth_l1_loss(x, soft),
        F.binary_cross_entropy_with_logits(x, soft),
        F.kl_div(F.log_softmax(x, -1), soft, reduction="batchmean"),
        F.cosine_similarity(x, soft, dim=-1).mean(),
    )


def _grid_sample(x: torch.Tensor) -> torch.Tensor:
    image = torch.linspace(-1, 1, 48).view(1, 2, 4, 6) * x.mean((1, 2))[:, None, None, None]
    return F.grid_sample(image, x.view(*x.shape[:2], H // 2, 2).tanh(), align_corners=False)


def _channels(x: torch.Tensor) -> torch.Tensor:
    """The length is a dimension of channels: of the input, then of the result."""
    inward = x.mean((0, 2))[None, :, None] * torch.linspace(-1, 1, 12).view(4, 1, 3)
    outward = x.mean((0, 2))[:, None, None] * torch.linspace(-1, 1, 12).view(1, 4, 3)
    return F.conv1d(F.conv1d(x, inward, padding=1), outward)


def _scatter_short(x: torch.Tensor) -> torch.Tensor:
    part = x[:, : x.shape[1] // 2]
    index = (part > 0).long() + 1
    return x.scatter_add(2, index, part.exp()).scatter(2, index + 3, part)


def _scatter_mean(x: torch.Tensor) -> torch.Tensor:
    index = (torch.arange(x.shape[1]) // 2)[None, :, None].expand_as(x)
    kept = [x.scatter_reduce(1, index, x.exp(), how, include_self=False) for how in ("mean", "amax", "sum")]
    return sum(kept, x.scatter_reduce(1, index, x, "mean"))


one("mean", lambda x: x.mean(1))
one("mean_all", lambda x: (x * 2).mean())
one("batch_mean", lambda x: x.mean(0))
one("softmax", lambda x: torch.softmax(x, 1))
one("log_softmax", lambda x: torch.log_softmax(x, 1).sum())
one("layer_norm", lambda x: F.layer_norm(x, (H,)))
one("rms_norm", lambda x: F.rms_norm(x, (H,)))
one("cumsum", lambda x: x.cumsum(1))
one("cumprod", lambda x: x.cumprod(1))
one("cummax", lambda x: x.cummax(1)[0])
one("logcumsumexp", lambda x: x.logcumsumexp(1))
one("last", lambda x: x[:, -1])
one("last_two", lambda x: x[:, -2:].sum(1))
one("all_but_last", lambda x: x[:, :-1] * x[:, 1:])
one("merge", lambda x: (x.reshape(-1, H) * 2).sum(0))
one("merge_returned", lambda x: x.reshape(-1, H).exp())
one("merge_inner", lambda x: x.reshape(x.shape[0], -1).softmax(-1))
one("amax", lambda x: x.amax(1))
one("max_indices", lambda x: x.max(1))
one("argmax", lambda x: (x * x.argmax(1, keepdim=True)).sum())
one("min_all", lambda x: x.exp().min())
one("var", lambda x: x.var(1))
one("std_all", lambda x: x.std())
one("norm", lambda x: x.norm(dim=1))
one("prod", lambda x: x.prod(1))
one("median", lambda x: x.median(1)[0])
one("median_all", lambda x: x.median())
one("kthvalue", lambda x: x.kthvalue(2, 1)[0])
one("any_all", lambda x: x.sum() * (x > -9).all(1).any())
one("logsumexp", lambda x: x.logsumexp(1))
one("cat", lambda x: torch.cat([x, x * 2], 1))
one("cat_static", lambda x: torch.cat([x[:, :1], x], 1))
one("cat_merged", lambda x: torch.cat([x.reshape(-1, H), x.reshape(-1, H).exp()], 0).sum(0))
one("stack", lambda x: torch.stack([x, x.exp()], 1).mean((1, 2)))
one("scale_by_size", lambda x: x * x.shape[1] + x.shape[0])
one("positions", lambda x: x + torch.arange(x.shape[1])[None, :, None])
one("positions_sin", lambda x: x + torch.sin(torch.arange(x.shape[1])[:, None] * torch.linspace(0.1, 1, H)))
one("eye", lambda x: torch.eye(x.shape[1]) @ x)
one("attention", lambda x: F.scaled_dot_product_attention(_heads(x), _heads(x), _heads(x)))
one("attention_causal", lambda x: F.scaled_dot_product_attention(_heads(x), _heads(x), _heads(x), is_causal=True))
one("attention_by_hand", lambda x: torch.softmax(x @ x.transpose(1, 2), -1) @ x)
one("attention_window", _window)
one("attention_alibi", _alibi)
one("attention_relative", _relative)
labelled("attention_masked", _padding_mask)
labelled("left_padding", _left_padding)
one("grouped_heads", lambda x: F.scaled_dot_product_attention(_heads(x), *_heads(x).split(1, 1), enable_gqa=True))
one("static_cache", _static_cache)
one("sliced_cache", _sliced_cache)
one("growing_cache", _growing_cache)
one("autocast", _autocast)
one("polar", _polar)
one("checkpointed", lambda x: checkpoint(lambda v: v.exp().cumsum(1).tanh(), x, use_reentrant=False))
one("exp_log", lambda x: x.exp().log().sum(1))
one("divide_by_sum", lambda x: x / x.exp().sum(1, keepdim=True))
one("sort", lambda x: x.sort(1)[0])
one("sort_merged", lambda x: x.reshape(-1, H).sort(0)[0])
one("topk", lambda x: x.topk(2, 1)[0])
one("topk_least", lambda x: x.masked_fill(x < 0, float("-inf")).topk(3, 1)[0])
one("sort_equal", lambda x: (torch.sort(x.sign(), dim=1, stable=True)[1], x.sum()))
one("sort_nan", lambda x: x.log().sort(1)[0])
one("flip", lambda x: x.flip(1))
one("roll", lambda x: x.roll(1, 1))
one("index_merged", lambda x: x.reshape(-1, H)[torch.arange(x.shape[0] * x.shape[1]) // 2])
one("index_reversed", lambda x: x[:, torch.arange(x.shape[1] - 1, -1, -1)])
one("gather", lambda x: x.gather(1, torch.zeros(x.shape[0], 2, H, dtype=torch.int64) - 1 + x.shape[1]))
one("tril", lambda x: (x @ x.transpose(1, 2)).tril().sum(-1))
one("masked_fill", lambda x: x.masked_fill(x < 0, float("-inf")).amax(1))
one("half", lambda x: x[:, : x.shape[1] // 2])
one("half_pairs", lambda x: x[:, : x.shape[1] // 2 * 2].reshape(x.shape[0], -1, 2 * H))
one("tail", lambda x: x[:, -(x.shape[1] // 2) :].cumsum(1))
one("tail_all", lambda x: x[:, -x.shape[1] :].exp().mean(1))
one("tail_from_front", lambda x: x[:, x.shape[1] - 2 :].sum(1) + x[:, x.shape[1] // 2 - 1])
one("tail_assigned", lambda x: _assign_tail(x))
one("tail_longer_than_all", lambda x: x[:, -40:].cumsum(1))
one("tail_longer_but_last", lambda x: x[:, -40:-1].cumsum(1) + x[:, -3:-1].sum(1, keepdim=True))
one("tail_strided", lambda x: x[:, -40::2].cumsum(1).sum(1) + x[:, -3::2].sum(1))
one("tail_longer_assigned", lambda x: _assign_tail(x, 40))
one("all_but_tail", lambda x: x[:, : -(x.shape[1] // 2)].cumsum(1))
one("pad_to_even", lambda x: F.pad(x, (0, 0, 0, x.shape[1] % 2)).view(x.shape[0], -1, 2, H).sum(2))
one("last_third", lambda x: x[:, 2 * ((x.shape[1] + 2) // 3) :].exp().sum(1))
one("rest_of_table", lambda x: x + torch.linspace(-1, 1, 40 * H).view(40, H)[x.shape[1] :].sum(0))
one("chunk_last", lambda x: x.chunk(2, 1)[-1].cumsum(1))
one("roll_half", lambda x: x.roll(x.shape[1] // 2, 1))
labelled("last_of_row", lambda x, y: x[torch.arange(x.shape[0]), (y >= 0).long().sum(1) - 1])
one("strided", lambda x: x[:, ::2] + x[:, ::2].mean())
one("strided_from", lambda x: x[:, 1::2].sum(1))
one("pad", lambda x: F.pad(x, (0, 0, 1, 2), value=3.0))
one("pad_negative", lambda x: F.pad(x, (0, 0, -1, -1)))
one("unfold", lambda x: x.unfold(1, 2, 1).mean(1))
one("chunked_scan", Scan())
one("decay", _decay)
one("repeat", lambda x: x.repeat(1, 2, 1))
one("repeat_interleave", lambda x: x.repeat_interleave(2, 1))
one("expand", lambda x: x.mean(1, keepdim=True).expand(-1, x.shape[1], -1) + x)
one("sum_over_size", lambda x: x.sum() / (x.shape[0] * x.shape[1]))
one("avg_pool", lambda x: F.avg_pool1d(x.transpose(1, 2), 2))
one("max_pool", lambda x: F.max_pool1d(x.transpose(1, 2), 2))
one("adaptive_pool", lambda x: F.adaptive_avg_pool1d(x.transpose(1, 2), 1))
one("adaptive_max", lambda x: F.adaptive_max_pool1d(x.transpose(1, 2), 1))
one("adaptive_max_plane", lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True))
one("adaptive_max_rows", lambda x: F.adaptive_max_pool2d(x, (1, 4)))
one("adaptive_pool_windows", lambda x: F.adaptive_avg_pool2d(x, (3, 5)))
one("max_pool_plane", lambda x: F.max_pool2d(x.transpose(0, 2), 2, return_indices=True))
one("max_pool_space", lambda x: F.max_pool3d(x.unsqueeze(0), 2, return_indices=True))
one("replicate_pad", lambda x: F.pad(x.transpose(1, 2), (2, 1), mode="replicate"))
one("grid_sample", _grid_sample)
one("fourier", lambda x: torch.view_as_real(torch.fft.rfft(x, dim=2)).square().sum(1))
one("complex", lambda x: torch.view_as_real(torch.view_as_complex(x.view(*x.shape[:2], 4, 2)) * (1 + 2j)))
one("diagonal", lambda x: (x @ x.transpose(1, 2)).diagonal(0, 1, 2))
one("addbmm", lambda x: torch.addbmm(torch.ones(x.shape[1], x.shape[1]), x, x.transpose(1, 2)))
one("layer_norm_padded", lambda x: F.layer_norm(x.transpose(1, 2), (x.shape[1],)))
one("embedding_rows", lambda x: F.embedding(torch.arange(x.shape[1]) // 2, x.mean(0)))
one("channels", _channels)
one("masked_scatter", lambda x: torch.zeros_like(x).masked_scatter(x > 0, x.exp()))
one("scatter_short", _scatter_short)
one("scatter_mean", _scatter_mean)
one("interpolate", lambda x: F.interpolate(x.transpose(1, 2), scale_factor=2, mode="nearest"))
one("cdist", lambda x: torch.cdist(x, x).sum())
one("outer_batch", lambda x: x.mean(1) @ x.mean(1).t())
one("contrastive", lambda x: F.cross_entropy(x.mean(1) @ x.mean(1).t(), torch.arange(x.shape[0])))
# Products that are of ordinary size but for the padding.
one("running_product", lambda x: x.softmax(1).transpose(1, 2) @ torch.full_like(x, 1000.0).cumprod(1))
one("product_of_rows", lambda x: x.mean(2).softmax(1)[:, None] @ torch.where(x == 0, 1e10, x).prod(2, keepdim=True))
one("bf16", lambda x: F.layer_norm(F.gelu(x.bfloat16() * 2), (H,)).softmax(1).float())
one("in_place", lambda x: x.clone().add_(1).mul_(x).mean(1))
one("slice_assign", lambda x: _assign(x))
one("dropout", lambda x: F.dropout(x, 0.5, True), expect="refused")
one("random", lambda x: x + torch.rand_like(x), expect="refused")
labelled("cross_entropy", lambda x, y: F.cross_entropy(x.reshape(-1, H), y.reshape(-1), ignore_index=-100))
labelled(
    "cross_entropy_shifted",
    lambda x, y: F.cross_entropy(x[:, :-1].reshape(-1, H), y[:, 1:].reshape(-1), ignore_index=-100),
)
labelled(
    "cross_entropy_smoothed",
    lambda x, y: F.cross_entropy(x.reshape(-1, H), y.reshape(-1).clamp(min=0), label_smoothing=0.1),
)
labelled("nll_sum", lambda x, y: F.nll_loss(F.log_softmax(x, -1).transpose(1, 2), y, reduction="sum"))
labelled("masked_mean", _masked_mean)
labelled("losses", _losses)
labelled("accuracy", lambda x, y: ((x.argmax(-1) == y).float().mean(), x.sum()))
labelled(
    "scatter_add", lambda x, y: torch.zeros(x.shape[0], H, H).scatter_add(1, y.clamp(min=0)[..., None].expand_as(x), x)
)
labelled("label_gather", lambda x, y: x.gather(2, y.clamp(min=0).unsqueeze(-1)).squeeze(-1).sum(1))
labelled("packed_sort", lambda x, y: x.reshape(-1, H)[y.reshape(-1).argsort(stable=True)])
module("mlp", Mlp)
module(
    "embedding", lambda: nn.Embedding(20, H), lambda m, x: m((x.detach() * 3).round().clamp(0, 19).long()).sum((2, 3))
)
module("router", Router)
module("router_sorted", SortedRouter)
module("router_grouped", Grouped)
module("conv1d", lambda: nn.Conv1d(H, 6, 3, padding=1), lambda m, x: m(x.transpose(1, 2)))
module(
    "conv1d_strided",
    lambda: nn.Sequential(nn.Conv1d(H, 6, 3, padding=1), nn.ReLU(), nn.Conv1d(6, 4, 3, padding=1, stride=2)),
    lambda m, x: m(x.transpose(1, 2)),
)
module(
    "conv1d_causal",
    lambda: nn.Conv1d(H, H, 3, padding=2, groups=H),
    lambda m, x: m(x.transpose(1, 2))[..., : x.shape[1]],
)
module("conv_transpose1d", lambda: nn.ConvTranspose1d(H, 4, 2, stride=2), lambda m, x: m(x.transpose(1, 2)))
module("conv2d", lambda: nn.Conv2d(1, 3, 3, padding=1), lambda m, x: m(x.unsqueeze(1)))
module("conv2d_flatten", lambda: nn.Conv2d(1, 3, 3, padding=1), lambda m, x: m(x.unsqueeze(1)).flatten(2).mean(-1))
module("batch_norm", lambda: nn.BatchNorm1d(H), lambda m, x: m(x.transpose(1, 2)))
module("batch_norm_eval", lambda: nn.BatchNorm1d(H).eval(), lambda m, x: m(x.transpose(1, 2)))
module("batch_norm2d", lambda: nn.BatchNorm2d(2), lambda m, x: m(_heads(x)))
module("group_norm", lambda: nn.GroupNorm(2, H), lambda m, x: m(x.transpose(1, 2)))
module("instance_norm", lambda: nn.InstanceNorm1d(H, affine=True), lambda m, x: m(x.transpose(1, 2)))
module("bilinear", lambda: nn.Bilinear(H, H, 4), lambda m, x: m(x, x), expect="either")
module("mha", lambda: nn.MultiheadAttention(H, 2, batch_first=True), lambda m, x: m(x, x, x)[0])
module("glu", lambda: nn.Linear(H, 2 * H), lambda m, x: F.glu(m(x), -1))
module("lstm", lambda: nn.LSTM(H, 6), lambda m, x: m(x[:, :3].transpose(0, 1))[0])


def _assign_tail(x: torch.Tensor, most: int | None = None) -> torch.Tensor:
    result = torch.ones_like(x)
    tail = x.shape[1] // 2 if most is None else most
    result[:, -tail:] = x[:, :tail]
    return result * x


def _assign(x: torch.Tensor) -> torch.Tensor:
    result = torch.zeros_like(x)
    result[:, 1:] = x[:, :-1]
    result[:, 0] = x[:, -1]
    return result
