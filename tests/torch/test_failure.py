"""Whatever fails on our side, the program gets what stock torch gives, and one warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import SHIM, Daemon, Programs
from neuroncache import config, counters
from neuroncache.artifact import Built, Hit
from neuroncache.cache import Cache
from neuroncache.client import Client

# Stock inductor is replaced by running the graph eagerly, so that no case costs a compiler; `ours` plays our compiler. All
# cases run in one process: what they have in common is most of what they cost.
PROGRAM = """
import json, logging, torch
import torch._inductor.compile_fx as compile_fx
import neuroncache
from neuroncache import backend, config, counters, log
from neuroncache.errors import Unsupported

neuroncache.enable()
stock, warned, calls = [], [], []

class Keep(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            warned.append(record.getMessage())

logging.getLogger("neuroncache").addHandler(Keep())

def compile_by_stock(gm, inputs, **keywords):
    stock.append(len(gm.graph.nodes))
    return gm.forward

compile_fx.compile_fx = compile_by_stock
def f(x): return (x * 2 + 1).sin()
def g(x): return x - 3, x
def bad(x): return x.view(2, 2)
x = torch.randn(5)

def both():
    a, b = torch.compile(f)(x), torch.compile(g)(x)
    return bool(torch.equal(a, f(x)) and torch.equal(b[0], x - 3))

def three_times():
    compiled = torch.compile(f)
    return all(bool(torch.equal(compiled(x), f(x))) for _ in range(3))

def own_error():
    seen = []
    for function in (bad, torch.compile(bad)):
        try:
            function(x)
        except Exception as error:
            seen.append("invalid for input of size" in str(error))
    return seen == [True, True]

def run(ours, action=both):
    torch._dynamo.reset()
    counters.reset()
    log._said.clear()
    for seen in (stock, warned, calls):
        seen.clear()
    def compile_by_us(gm, inputs, options):
        calls.append(1)
        return ours(gm)
    backend._compile = compile_by_us
    try:
        right = action()
    except BaseException as error:
        right = type(error).__name__ + ": " + str(error)
    counts = neuroncache.stats()
    return dict(
        right=right, stock=len(stock), warnings=len(warned), calls=len(calls), errors=counts["errors"],
        entries=counts["entries"], refusals=counts["refusals"], bypasses=counts["bypass_reasons"],
        outcome=(neuroncache.explain_last() or {}).get("outcome"),
    )

def fault(error):
    def ours(gm):
        raise error
    return ours

def signals(gm):
    if len(calls) == 1:
        raise torch._dynamo.exc.TensorifyScalarRestartAnalysis("test")
    if len(calls) == 3:
        raise torch._dynamo.exc.SkipFrame("test")
    return gm.forward

def returns(make):
    return lambda gm: lambda *arguments: make(arguments[0])

def strict():
    config.strict = True
    try:
        return both()
    finally:
        config.strict = False

def other_torch():
    supported, backend.SUPPORTED_TORCH = backend.SUPPORTED_TORCH, ("9.9.",)
    try:
        return both()
    finally:
        backend.SUPPORTED_TORCH = supported

results = dict(
    value_error=run(fault(ValueError("a fault\\nof ours"))),
    index_error=run(fault(IndexError("x"))),
    missing_module=run(fault(ModuleNotFoundError("x"))),
    nothing=run(lambda gm: None),
    number=run(lambda gm: 7),
    unsupported=run(fault(Unsupported("no such op", op="aten.x", source="f.py:1"))),
    signals=run(signals),
    interrupt=run(fault(KeyboardInterrupt())),
    own_error=run(lambda gm: gm.forward, own_error),
    checked_once=run(lambda gm: gm.forward, three_times),
    bare_tensor=run(returns(lambda x: x)),
    too_many=run(returns(lambda x: (x, x, x))),
    no_tensor=run(returns(lambda x: (1,))),
    none=run(returns(lambda x: (None,))),
    zero_dims=run(returns(lambda x: x.sum())),
    strict=run(fault(ValueError("a fault")), strict),
    other_torch=run(lambda gm: gm.forward, other_torch),
)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("failures")
    programs = Programs(directory, {"NEURONCACHE_SOCKET": "/proc/none/d.sock", "NEURONCACHE_AUTOSTART": "0"})
    try:
        result: dict[str, dict[str, Any]] = programs.run(PROGRAM, env={"HOME": str(directory)}).value
    finally:
        programs.close()
    return result


@pytest.mark.parametrize("case", ["value_error", "index_error", "missing_module", "nothing", "number"])
def test_a_fault_is_one_warning_and_stock(outcomes: dict[str, dict[str, Any]], case: str) -> None:
    outcome = outcomes[case]
    assert outcome["right"] is True
    assert (outcome["stock"], outcome["errors"], outcome["outcome"]) == (2, 2, "stock")
    assert outcome["warnings"] == 1
    assert outcome["bypasses"] == {"error": 2}


def test_what_we_do_not_support_is_no_fault(outcomes: dict[str, dict[str, Any]]) -> None:
    outcome = outcomes["unsupported"]
    assert (outcome["right"], outcome["stock"], outcome["warnings"], outcome["errors"]) == (True, 2, 0, 0)
    assert outcome["refusals"][0] == {"op": "aten.x", "reason": "no such op", "source": "f.py:1"}


def test_signals_to_dynamo_pass(outcomes: dict[str, dict[str, Any]]) -> None:
    """Dynamo traces again after a restart, and leaves a frame alone when it is asked to."""
    outcome = outcomes["signals"]
    assert (outcome["right"], outcome["calls"], outcome["stock"], outcome["warnings"]) == (True, 3, 0, 0)


def test_an_interrupt_passes(outcomes: dict[str, dict[str, Any]]) -> None:
    assert outcomes["interrupt"]["right"] == "KeyboardInterrupt: "
    assert outcomes["interrupt"]["stock"] == 0


def test_the_users_own_error_is_the_users(outcomes: dict[str, dict[str, Any]]) -> None:
    assert outcomes["own_error"]["right"] is True
    assert outcomes["own_error"]["warnings"] == 0


def test_right_outputs_are_checked_and_used(outcomes: dict[str, dict[str, Any]]) -> None:
    outcome = outcomes["checked_once"]
    assert (outcome["right"], outcome["calls"], outcome["entries"], outcome["stock"]) == (True, 1, 1, 0)


@pytest.mark.parametrize("case", ["bare_tensor", "too_many", "no_tensor", "none", "zero_dims"])
def test_wrong_outputs_are_noticed(outcomes: dict[str, dict[str, Any]], case: str) -> None:
    assert outcomes[case]["right"].startswith("OutputMismatch: ")
    assert "NEURONCACHE=0" in outcomes[case]["right"]


def test_strict_raises(outcomes: dict[str, dict[str, Any]]) -> None:
    assert "a fault" in outcomes["strict"]["right"]
    assert outcomes["strict"]["stock"] == 0


def test_another_torch_is_left_alone(outcomes: dict[str, dict[str, Any]]) -> None:
    outcome = outcomes["other_torch"]
    assert (outcome["right"], outcome["stock"], outcome["warnings"]) == (True, 2, 0)
    assert outcome["bypasses"] == {"torch_version": 2}


@pytest.mark.parametrize("fault", ["garbage", "error500", "close", "badblob", "no_space", "old"])
def test_a_faulty_daemon_changes_nothing(
    faulty: Callable[[str], Daemon], fault: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = faulty(fault)
    for name, value in daemon.env.items():
        monkeypatch.setenv(name, value)
    config.reload()
    counters.reset()
    monkeypatch.setattr("neuroncache.log._said", set())
    cache = Cache(Client(str(daemon.socket), trust_any_owner=True))

    def load(hit: Hit) -> str:
        return hit.data("o").decode()

    def obtain() -> str:
        return cache.obtain(
            "graph",
            [("k", "1")],
            label="t",
            compiler="c",
            build=lambda: Built("right", {"o": b"right"}),
            load=load,
        )

    assert [obtain() for _ in range(3)] == ["right"] * 3
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1, warnings
    if fault == "badblob":
        assert counters.snapshot()["bypass_reasons"] == {"load_failed": 2}


def test_a_cache_that_cannot_be_imported_is_stock(lone_programs: Programs, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(SHIM / "neuroncache", tmp_path / "damaged" / "neuroncache")
    (tmp_path / "damaged/neuroncache/counters.py").write_text("raise ImportError('damaged')\n")
    code = """
        import json, torch
        import torch._inductor.compile_fx as compile_fx
        from neuroncache import hooks
        hooks.install()
        compile_fx.compile_fx = lambda gm, inputs, **keywords: gm.forward
        x = torch.ones(3)
        print(json.dumps([torch.compile(lambda x: x + n)(x).sum().item() for n in (1, 2)]))
    """
    result = lone_programs.run(code, env={"PYTHONPATH": str(tmp_path / "damaged")})
    assert result.value == [6, 9]
    assert len(result.warnings) == 1, result.err
