"""Training on padded graphs with the real engine: a small language model, on a static-only backend and on inductor."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import neuroncache
import pytest
import torch
import torch.nn.functional as F
from bucketing_tools import StaticBackend, ToolEngine, bucketed, entries, padding_tool
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

VOCABULARY = 50

pytestmark = pytest.mark.skipif(padding_tool() is None, reason="the engine is not built")


@pytest.fixture(scope="module")
def engine() -> Iterator[ToolEngine]:
    program = padding_tool()
    assert program is not None
    result = ToolEngine(program)
    yield result
    result.close()


def test_places_behind_the_true_end_have_no_gradient(engine: ToolEngine) -> None:
    """Padded to a fixed length by the program: what is there counts in no sum over the length."""
    torch.manual_seed(0)
    model, weight = nn.Linear(4, 4), torch.randn(16, 1)

    def plain(x: torch.Tensor) -> torch.Tensor:
        return (F.pad(model(x), (0, 0, 0, 16 - x.shape[1])) * weight).sum(1)

    with bucketed(StaticBackend(), engine, strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        for length in (12, 13, 14, 15, 9):
            x, found = torch.randn(2, length, 4), []
            for function in (compiled, plain):
                model.zero_grad()
                function(x).square().sum().backward()
                found.append([parameter.grad.clone() for parameter in model.parameters()])
            torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)
        assert neuroncache.stats()["buckets"] and not neuroncache.stats()["refusals"]


@pytest.mark.parametrize("lengths", [(63, 60, 58, 57, 41), (20, 33, 50)])
def test_sizes_that_fall_as_the_length_grows(engine: ToolEngine, lengths: tuple[int, ...]) -> None:
    table = torch.randn(80, 4)

    def plain(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.chunk(3, 1)[-1].sum(1), x + table[x.shape[1] :].sum(0)

    with bucketed(StaticBackend(), engine, strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        for length in lengths:
            x = torch.randn(3, length, 4)
            torch.testing.assert_close(compiled(x), plain(x), rtol=1e-4, atol=1e-4)
        assert not neuroncache.stats()["refusals"]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        allowed = causal[None, None] & mask[:, None, None, :].bool()
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(256, width)
        self.block, self.norm = Block(width, 2), nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        logits = self.head(self.norm(self.block(x, mask)))
        loss = F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1), ignore_index=-100)
        return loss, logits


def batch_of(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, VOCABULARY, (batch, length))
    mask = (torch.arange(length) < torch.randint(1, length + 1, (batch, 1))).long()
    return ids, mask, ids.masked_fill(mask == 0, -100)


def compare(model: nn.Module, compiled: Any, given: tuple[torch.Tensor, ...], tolerance: float) -> None:
    results = []
    for function in (compiled, model):
        model.zero_grad()
        loss, logits = function(*given)
        (loss + logits.square().mean()).backward()
        results.append([loss, logits, *(parameter.grad.clone() for parameter in model.parameters())])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def test_200_shapes_of_a_language_model(engine: ToolEngine) -> None:
    torch.manual_seed(0)
    numbers = random.Random(1)
    model, backend = Model().double(), StaticBackend()
    with bucketed(backend, engine, strict=True, verify="off") as name:
        compiled = torch.compile(model, backend=name)
        for step in range(200):
            given = batch_of(numbers.randint(2, 8), numbers.randint(2, 48))
            if step < 12 or step % 25 == 0:
                compare(model, compiled, given, 1e-9)
            else:
                compiled(*given)[0].backward()
        stats = neuroncache.stats()
        assert entries(Model.forward) == 2  # the first shape, and all others
        assert stats["errors"] == 0 and not stats["refusals"] and not stats["bypass_reasons"]
        assert stats["buckets"] <= 4 * 8


def test_a_loop_over_chunks_is_padded_within_its_number_of_chunks(engine: ToolEngine) -> None:
    """The number of chunks is a number in the graph; the engine has to know what it stands for. Nor may the trace's guard
    that something was missing from the last chunk keep all buckets out that are whole chunks."""

    def function(x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        missing = -length % 8
        if missing > 0:
            x = F.pad(x, (0, 0, 0, missing))
        chunks = x.reshape(batch, -1, 8, width)
        state, results = torch.zeros(batch, width), []
        for index in range((length + 7) // 8):
            results.append(chunks[:, index].cumsum(1) + state[:, None])
            state = state * 0.5 + chunks[:, index].sum(1)
        return torch.stack(results, 1).reshape(batch, -1, width)[:, :length]

    torch.manual_seed(0)
    backend = StaticBackend()
    with bucketed(backend, engine, strict=True) as name:
        compiled = torch.compile(function, backend=name)
        for length in (3, 5, 6, 7, 4, 11, 13, 14, 10, 9, 15):
            given = torch.randn(4, length, 6)
            torch.testing.assert_close(compiled(given), function(given))
        stats = neuroncache.stats()
        assert not stats["refusals"] and not stats["errors"] and not stats["bypass_reasons"], stats
        assert len(backend.graphs) <= 7, "11 lengths of one and of two chunks"


def test_blocks_that_are_computed_again_for_the_backward(engine: ToolEngine) -> None:
    """Attention is tagged as random; without dropout no random state has to be kept for it."""

    class Checkpointed(Block):
        def attend(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).flatten(2))

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            x = x + checkpoint(self.attend, x, use_reentrant=False)
            return x + checkpoint(lambda v: self.down(F.gelu(self.up(v))), x, use_reentrant=False)

    torch.manual_seed(0)
    model, backend = Checkpointed(16, 2).double(), StaticBackend()
    with bucketed(backend, engine, strict=True) as name:
        compiled = torch.compile(model, backend=name)
        for shape in ((3, 5), (2, 9), (4, 7), (3, 12)):
            results = []
            x = torch.randn(*shape, 16, dtype=torch.float64)
            for function in (compiled, model):
                model.zero_grad()
                given = x.clone().requires_grad_()
                function(given).square().mean().backward()
                results.append([given.grad, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
            torch.testing.assert_close(*results)
        stats = neuroncache.stats()
        assert not stats["refusals"] and not stats["bypass_reasons"] and stats["buckets"] >= 2


def test_an_operator_of_higher_order_is_refused_by_name(engine: ToolEngine) -> None:
    def function(x: torch.Tensor) -> Any:
        q = x.unsqueeze(1)
        return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1)

    backend = StaticBackend()
    with bucketed(backend, engine) as name:
        compiled = torch.compile(function, backend=name, dynamic=True)
        for length in (5, 9):
            x = torch.randn(2, length, 16)
            torch.testing.assert_close(compiled(x), torch.compile(function, backend="eager")(x))
        (refusal,) = {(refusal["op"], refusal["reason"]) for refusal in neuroncache.stats()["refusals"]}
        assert "flex_attention" in " ".join(refusal), refusal


def test_labels_that_do_not_fit_run_at_their_exact_shape(engine: ToolEngine) -> None:
    """The plan takes the labels' sizes for those of the logits; a call where only their product agrees must not be padded."""

    def loss(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x.view(-1, 5), labels.view(-1), reduction="none").exp().mean()

    backend = StaticBackend()
    with bucketed(backend, engine, strict=True) as name:
        compiled = torch.compile(loss, backend=name, dynamic=True)
        for shape, other in (((4, 6), (4, 6)), ((3, 8), (3, 8)), ((3, 8), (4, 6)), ((3, 8), (3, 8))):
            results = []
            x, labels = torch.randn(*shape, 5, dtype=torch.float64), torch.randint(0, 5, other)
            for function in (compiled, loss):
                given = x.clone().requires_grad_()
                value = function(given, labels)
                value.backward()
                results.append((value, given.grad))
            torch.testing.assert_close(*results)
        assert entries(loss) == 1
        assert neuroncache.stats()["bypass_reasons"] == {"exact_shape": 1}


def test_outputs_are_where_and_as_they_would_be(engine: ToolEngine) -> None:
    """Views of inputs, merged sizes, transposed results, inputs that are changed in place."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.add_(1)
        merged = (x * 2).reshape(-1, x.shape[-1])
        return x[:, 1:], x.transpose(0, 1), merged, (x + 1).transpose(0, 1), merged.sum(0), x.shape[0] * 3

    backend = StaticBackend()
    with bucketed(backend, engine, strict=True) as name:
        compiled = torch.compile(function, backend=name, dynamic=True)
        for shape in ((3, 5, 4), (6, 7, 4), (5, 9, 4)):
            x, y = torch.randn(shape), torch.randn(shape[:2])
            mine, theirs = y.clone(), y.clone()
            got, expected = compiled(x, mine), function(x, theirs)
            torch.testing.assert_close(mine, theirs)
            for one, other in zip(got[:-1], expected[:-1], strict=True):
                torch.testing.assert_close(one, other)
                assert one.stride() == other.stride() and one.storage_offset() == other.storage_offset()
            assert got[-1] == expected[-1]
            assert got[0].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            got[2].mul_(2)  # a result may be written to
        assert neuroncache.stats()["buckets"] >= 2


def test_inductor_on_padded_graphs(engine: ToolEngine) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def loss(x: torch.Tensor) -> torch.Tensor:
        return model(x).softmax(1).square().mean()

    with bucketed(None, engine, strict=True, bucketing="on") as name:
        compiled = torch.compile(loss, backend=name, dynamic=True)
        for length in (5, 7, 9, 8, 11):
            results = []
            x = torch.randn(6, length, 4)
            for function in (compiled, loss):
                model.zero_grad()
                value = function(x)
                value.backward()
                results.append([value, *(parameter.grad.clone() for parameter in model.parameters())])
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)
        stats = neuroncache.stats()
        assert entries(loss) == 1 and stats["errors"] == 0 and stats["kinds"]["graph"]["builds"] <= 2 * stats["buckets"]
        assert 2 <= stats["buckets"] <= 3


@pytest.mark.parametrize("known", [True, False])
def test_inductors_own_passes_come_first_where_the_engine_knows_what_they_make(engine: ToolEngine, known: bool) -> None:
    """Attention written by hand becomes SDPA. Where that could not be padded, the graph as it was is."""
    weight = nn.Parameter(torch.randn(24, 24) / 10)

    def attention(x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.view(*x.shape[:2], 2, -1).transpose(1, 2) for part in (x @ weight).chunk(3, -1))
        return ((q @ k.transpose(-2, -1)).div(2.0).softmax(-1) @ v).sum(-1)

    asked: list[set[str]] = []

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        ops = {node["op"] for node in request["forward"]["nodes"]}
        asked.append(ops)
        fused = any("scaled_dot_product" in op for op in ops)
        if fused and not known:
            return {
                "plan": 1,
                "engine": "x",
                "refusal": {"graph": "forward", "node": 0, "op": "sdpa", "reason": "none"},
            }
        return engine(request)

    torch.manual_seed(0)
    with bucketed(None, ask, strict=True, bucketing="on", verify="off") as name:
        compiled = torch.compile(attention, backend=name, dynamic=True)
        for shape in ((3, 5), (4, 9), (3, 6)):
            x = torch.randn(*shape, 24)
            results = []
            for function in (compiled, attention):
                given = x.clone().requires_grad_()
                value = function(given)
                value.square().sum().backward()
                results.append((value.detach(), given.grad))
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
        assert [any("scaled_dot_product" in op for op in ops) for ops in asked] == ([True] if known else [True, False])
        assert neuroncache.stats()["buckets"] >= 2 and not neuroncache.stats()["refusals"]
