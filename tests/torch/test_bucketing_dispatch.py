"""Graphs with open sizes on padded ones, from Dynamo's call to the gradients, with a backend that takes fixed sizes only."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import types
from collections.abc import Callable
from typing import Any

import neuroncache
import pytest
import torch
from bucketing_tools import StaticBackend, bucketed, entries, naive_engine
from neuroncache.bucketing import background, dispatch
from neuroncache.errors import DaemonUnavailable

COUNT = itertools.count()
MODEL = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)
).double()


def step(function: Callable[..., Any], x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """Outputs and all gradients of one step."""
    x = x.clone().requires_grad_()
    MODEL.zero_grad()
    outputs = function(x, y)
    sum(output.pow(2).sum() for output in outputs).backward()
    return [*outputs, x.grad, *(parameter.grad.clone() for parameter in MODEL.parameters())]


def inputs(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, length, 4, dtype=torch.float64), torch.randn(batch, length, dtype=torch.float64)


def make() -> Callable[..., Any]:
    """A function with a code object of its own, so that every test starts with no entries."""

    def plain(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = MODEL(x)
        return z * y[..., None], z.sum(-1)

    return types.FunctionType(plain.__code__.replace(co_name=f"plain_{next(COUNT)}"), globals())


def check(compiled: Callable[..., Any], plain: Callable[..., Any], batch: int, length: int) -> None:
    x, y = inputs(batch, length)
    results = list(zip(step(compiled, x, y), step(plain, x, y), strict=True))
    for got, expected in results:
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    assert all(got.stride() == expected.stride() for got, expected in results[:2])


def test_many_shapes_on_few_graphs() -> None:
    backend, plain = StaticBackend(), make()
    numbers = random.Random(0)
    with bucketed(backend, strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        for _ in range(60):
            check(compiled, plain, numbers.randint(2, 16), numbers.randint(2, 64))
        stats = neuroncache.stats()
        assert entries(plain) == 2  # the first shape, and all others
        assert stats["buckets"] <= 5 * 8 and stats["errors"] == 0 and stats["bypasses"] == 0
        assert 0 < stats["padding_waste"] < 0.6


def test_what_is_cut_off_from_the_gradient_stays_so_and_lies_as_it_did() -> None:
    def plain(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
        y = x.exp()
        return y[:, 0].detach(), y * 2, x.shape[1] > 16

    with bucketed(StaticBackend(), strict=True) as name:
        compiled = torch.compile(plain, backend=name, dynamic=True)
        for grad, length in itertools.product((True, False), (20, 20, 30, 7)):
            x = torch.randn(4, length, 8, requires_grad=True)
            with torch.set_grad_enabled(grad):
                got, expected = compiled(x), plain(x)
            assert [one.requires_grad for one in got[:2]] == [False, grad]
            assert got[0].stride() == expected[0].stride()
            assert got[2] is expected[2]
        for length in (20, 20, 30, 7):
            x = torch.randn(4, length, 8, requires_grad=True)
            first, second, _ = compiled(x)
            first.mul_(2)  # where it lies in the memory of what the gradient needs, autograd has to see that
            with contextlib.suppress(RuntimeError):
                second.sum().backward()
                torch.testing.assert_close(x.grad, 2 * x.detach().exp())
        assert neuroncache.stats()["buckets"]


def test_the_users_dynamic_gives_one_entry() -> None:
    for dynamic in (True, None):
        backend, plain = StaticBackend(), make()
        with bucketed(backend, strict=True) as name:
            compiled = torch.compile(plain, backend=name, dynamic=dynamic)
            x, y = inputs(3, 5)
            if dynamic is None:
                torch._dynamo.mark_dynamic(x, 0)
                torch._dynamo.mark_dynamic(x, 1)
                torch._dynamo.mark_dynamic(y, 0)
                torch._dynamo.mark_dynamic(y, 1)
            compiled(x, y)
            for batch, length in ((3, 5), (4, 6), (9, 30)):
                check(compiled, plain, batch, length)
            assert entries(plain) == 2  # with gradients of x, and without


def test_a_user_who_wants_no_symbolic_kernels_gets_buckets() -> None:
    backend, plain = StaticBackend(), make()
    with bucketed(backend, strict=True) as name:
        compiled = torch.compile(plain, backend=name, dynamic=False)
        for length in range(2, 30):
            check(compiled, plain, 4, length)
        assert entries(plain) == 2


def shapes_with_small_sizes(count: int) -> list[tuple[int, int]]:
    """Random ones, in which all combinations of sizes 0, 1 and more come early, late and often."""
    numbers = random.Random(3)
    first = [(1, 5), (4, 1), (1, 1), (0, 4), (3, 0), (0, 0), (1, 0), (0, 1), (1, 9), (9, 1)]
    numbers.shuffle(first)
    rest = [(numbers.choice([0, 1, 1, 2, 3, 5, 8]), numbers.choice([0, 1, 1, 2, 7, 9, 30])) for _ in range(count)]
    return [*first, *rest][:count]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_sizes_zero_and_one_have_few_entries(dynamic: bool | None, fullgraph: bool) -> None:
    backend, plain = StaticBackend(), make()
    with bucketed(backend, strict=True) as name:
        compiled = torch.compile(plain, backend=name, dynamic=dynamic, fullgraph=fullgraph)
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            for batch, length in shapes_with_small_sizes(200 if dynamic is None and not fullgraph else 40):
                check(compiled, plain, batch, length)
        assert entries(plain) <= 4
        calls = backend.calls
        check(compiled, plain, 1, 12)  # comes often: is compiled
        assert backend.calls >= calls + 2
        assert neuroncache.stats()["bypass_reasons"]["size_zero_or_one"] > 5


def test_a_last_batch_of_one_makes_no_entry_until_it_comes_again() -> None:
    backend, plain = StaticBackend(), make()
    with bucketed(backend, strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        for batch, length in ((4, 5), (4, 7), (1, 7)):
            check(compiled, plain, batch, length)
        assert entries(plain) == 2 and neuroncache.stats()["bypass_reasons"] == {"size_zero_or_one": 1}
        for batch, length in ((4, 9), (1, 9), (1, 30)):
            check(compiled, plain, batch, length)
        assert entries(plain) == 3 and neuroncache.stats()["bypass_reasons"] == {"size_zero_or_one": 1}


def test_forward_calls_may_come_before_their_backward_calls() -> None:
    backend, plain = StaticBackend(), make()
    with bucketed(backend, strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        shapes = [(3, 5), (4, 6), (7, 20), (3, 5), (12, 40), (4, 6)]
        given = [inputs(*shape) for shape in shapes]
        losses = [sum(output.pow(2).sum() for output in compiled(x.requires_grad_(), y)) for x, y in given]
        for loss in reversed(losses):
            loss.backward()
        for x, y in given:
            other = x.detach().clone().requires_grad_()
            sum(output.pow(2).sum() for output in plain(other, y)).backward()
            torch.testing.assert_close(x.grad, other.grad)


def test_threads() -> None:
    backend, plain = StaticBackend(), make()
    failures: list[BaseException] = []
    with bucketed(backend, strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        for length in (5, 6):
            check(compiled, plain, 3, length)

        def work(seed: int) -> None:
            numbers = random.Random(seed)
            try:
                for _ in range(10):
                    x, y = inputs(numbers.randint(2, 6), numbers.randint(2, 20))
                    x.requires_grad_()
                    (got,) = torch.autograd.grad(compiled(x, y)[0].sum(), x)
                    (expected,) = torch.autograd.grad(plain(x, y)[0].sum(), x)
                    torch.testing.assert_close(got, expected)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]


def test_without_gradients() -> None:
    backend, plain = StaticBackend(), make()
    with bucketed(backend, strict=True) as name, torch.no_grad():
        compiled = torch.compile(plain, backend=name)
        for length in (5, 6, 7, 19):
            x, y = inputs(3, length)
            torch.testing.assert_close(compiled(x, y), plain(x, y))
        assert neuroncache.stats()["buckets"] == 3


def test_a_ready_bucket_serves_while_a_better_one_is_built() -> None:
    backend, plain = StaticBackend(), make()
    with bucketed(backend, strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        for length in (5, 60):
            check(compiled, plain, 4, length)
        (dispatcher,) = dispatch.everyone
        before = neuroncache.stats()["buckets"]
        check(compiled, plain, 4, 10)
        assert any(record.provisional for record in dispatcher.records())
        background.drain()
        assert neuroncache.stats()["background_builds"] == 1 and neuroncache.stats()["buckets"] == before + 1
        calls = len(backend.graphs)
        check(compiled, plain, 4, 10)
        assert len(backend.graphs) == calls
        newest = dispatcher.records()[-1]
        assert newest.sizes == {"s0": 4, "s1": 10} and newest.unit.buckets == {"s0": 4, "s1": 16}


def test_a_mismatch_of_unified_sizes_runs_at_its_exact_shape() -> None:
    def engine(request: dict[str, Any]) -> dict[str, Any]:
        ids = [symbol["id"] for symbol in request["forward"]["symbols"]]
        return {**naive_engine(request), "unify": [ids[:2]]}

    backend, plain = StaticBackend(), make()
    with bucketed(backend, engine, strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        for batch, length in ((5, 5), (6, 6), (7, 7), (7, 9), (7, 9), (12, 12)):
            check(compiled, plain, batch, length)
        (dispatcher,) = dispatch.everyone
        assert [record.unit.exact for record in dispatcher.records()] == [False, False, True, False]
        assert all(
            len(set(record.unit.buckets.values())) == 1 for record in dispatcher.records() if not record.unit.exact
        )
        assert neuroncache.stats()["bypass_reasons"] == {"exact_shape": 1}


def test_a_bucket_that_breaks_what_the_plan_requires_is_not_used() -> None:
    def engine(request: dict[str, Any]) -> dict[str, Any]:
        answer = naive_engine(request)
        answer["forward"]["require"] = [["+", 20, ["*", -1, "s1"]]]
        return answer

    backend, plain = StaticBackend(), make()
    with bucketed(backend, engine, strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        for length in (5, 6, 18, 25):
            check(compiled, plain, 4, length)
        (dispatcher,) = dispatch.everyone
        used = {record.sizes["s1"]: (record.unit.buckets["s1"], record.unit.exact) for record in dispatcher.records()}
        assert used == {6: (6, False), 18: (18, False), 25: (25, True)}


@pytest.mark.parametrize("refusal", [True, False])
def test_without_a_plan_every_shape_is_compiled(refusal: bool) -> None:
    def engine(request: dict[str, Any]) -> dict[str, Any]:
        if not refusal:
            raise DaemonUnavailable("gone")
        return {
            "plan": 1,
            "engine": "x",
            "refusal": {"graph": "forward", "node": 1, "op": "aten.addmm.default", "reason": "no rule"},
        }

    backend, plain = StaticBackend(), make()
    with bucketed(backend, engine, strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        for length in (5, 6, 7, 6, 7):
            check(compiled, plain, 4, length)
        stats = neuroncache.stats()
        assert stats["buckets"] == 0 and len(backend.graphs) == 3
        (only,) = stats["refusals"]
        if refusal:
            assert only["op"] == "aten.addmm.default" and only["reason"] == "no rule" and "line " in only["source"]
        else:
            assert "gone" in only["reason"]


def test_a_broken_compiler_costs_speed_only() -> None:
    backend, plain = StaticBackend(), make()
    with bucketed(backend) as name:
        compiled = torch.compile(plain, backend=name)
        check(compiled, plain, 4, 5)
        backend.fail = True
        for length in (6, 7, 30):
            check(compiled, plain, 4, length)
        assert neuroncache.stats()["errors"] > 0


def test_off_means_off() -> None:
    backend, plain = StaticBackend(), make()
    with bucketed(backend, bucketing="off") as name:
        compiled = torch.compile(plain, backend=name, dynamic=False)
        for length in (5, 6, 7):
            check(compiled, plain, 4, length)
        assert entries(plain) == 3 and neuroncache.stats()["buckets"] == 0


def test_other_backends_see_what_they_always_saw() -> None:
    plain = make()
    seen = []

    def other(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append([type(value).__name__ for value in inputs])
        return gm

    with bucketed(StaticBackend()):
        compiled = torch.compile(plain, backend=other)
        for length in (5, 6):
            compiled(*inputs(5, length))
        assert "SymInt" not in seen[0] and seen[1].count("SymInt") == 1  # only the length is open


def wrong_engine(role: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A plan whose forward or backward graph computes something else."""

    def engine(request: dict[str, Any]) -> dict[str, Any]:
        answer = {**naive_engine(request), "unproven": ["aten.gelu.default"]}
        for node in answer[role]["nodes"]:
            if node["op"] == "aten.mul.Tensor":
                node["op"] = "aten.add.Tensor"
        return answer

    return engine


@pytest.mark.parametrize("role", ["forward", "backward"])
def test_a_wrong_plan_is_found_on_the_users_data_and_never_used_again(role: str) -> None:
    backend, plain = StaticBackend(), make()
    with bucketed(backend, wrong_engine(role), strict=True) as name:
        compiled = torch.compile(plain, backend=name)
        for length in (5, 6, 7, 20):
            check(compiled, plain, 4, length)
        stats = neuroncache.stats()
        assert (stats["verified"], stats["mismatches"], stats["buckets"]) == (1, 1, 1)
        assert stats["bypass_reasons"]["exact_shape"] >= 2


def test_verification_is_a_choice() -> None:
    for verify, expected in (("off", 0), ("first", 2), ("sample", 2)):
        backend, plain = StaticBackend(), make()

        def engine(request: dict[str, Any], mode: str = verify) -> dict[str, Any]:
            return {**naive_engine(request), "unproven": ["aten.gelu.default"] if mode == "first" else []}

        with bucketed(backend, engine, strict=True, verify=verify) as name:
            compiled = torch.compile(plain, backend=name)
            for length in (5, 6, 6, 20, 20, 21):
                check(compiled, plain, 4, length)
            stats = neuroncache.stats()
            assert (stats["verified"], stats["mismatches"]) == (expected, 0)


def test_a_plan_that_does_not_run_costs_speed_only() -> None:
    def engine(request: dict[str, Any]) -> dict[str, Any]:
        answer = naive_engine(request)
        for node in answer["forward"]["nodes"]:
            if node["op"] == "aten.reshape.default":
                node["a"][1] = [3, 7, 11]
        return answer

    backend, plain = StaticBackend(), make()
    with bucketed(backend, engine) as name:
        compiled = torch.compile(plain, backend=name)
        for length in (5, 6, 20):
            check(compiled, plain, 4, length)
        stats = neuroncache.stats()
        assert stats["errors"] > 0 and stats["bypass_reasons"]["exact_shape"] == 2
