"""Whatever fails on our side, the program gets what stock torch gives, and one warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Daemon, Programs
from neuroncache import config, counters
from neuroncache.artifact import Built, Hit
from neuroncache.cache import Cache
from neuroncache.client import Client

# Stock inductor is replaced by running the graph eagerly, so that each case costs no compiler; `ours` plays our compiler.
PRELUDE = """
import json, torch
import torch._inductor.compile_fx as compile_fx
import neuroncache
from neuroncache import backend
from neuroncache.errors import Unsupported
neuroncache.enable()
stock = []
def compile_by_stock(gm, inputs, **keywords):
    stock.append(1)
    return gm.forward
compile_fx.compile_fx = compile_by_stock
def f(x): return (x * 2 + 1).sin()
def g(x): return x - 3, x
x = torch.randn(5)
def both():
    torch._dynamo.reset()
    a, b = torch.compile(f)(x), torch.compile(g)(x)
    return bool(torch.equal(a, f(x)) and torch.equal(b[0], x - 3))
def show(*values):
    print(json.dumps(values))
"""


def _run(programs: Programs, ours: str, then: str, **env: str) -> tuple[list[object], list[str]]:
    code = f"{PRELUDE}\ndef ours(gm, inputs, options):\n    {ours}\nbackend._compile = ours\n{then}\n"
    result = programs.run(code, env=env)
    return result.value, result.warnings


@pytest.mark.parametrize(
    "ours",
    [
        "raise ValueError('a fault\\nof ours')",
        "raise IndexError('x')",
        "return None",
        "return 7",
        "gm.graph.erase_node(next(iter(gm.graph.nodes)))",
        "import neuroncache.no_such_module",
    ],
)
def test_a_fault_is_one_warning_and_stock(lone_programs: Programs, ours: str) -> None:
    then = "show(both(), len(stock), neuroncache.stats()['errors'], neuroncache.explain_last()['outcome'])"
    if "erase" in ours:
        # The graph must be stock's as it came: what we do to it is done to a copy.
        ours = "raise RuntimeError(len(gm.graph.nodes))"
    value, warnings = _run(lone_programs, ours, then)
    assert value == [True, 2, 2, "stock"]
    assert len(warnings) == 1, warnings


def test_what_we_do_not_support_is_no_fault(lone_programs: Programs) -> None:
    ours = "raise Unsupported('no such op', op='aten.x', source='f.py:1')"
    value, warnings = _run(lone_programs, ours, "show(both(), len(stock), neuroncache.stats()['refusals'][0])")
    assert value == [True, 2, {"op": "aten.x", "reason": "no such op", "source": "f.py:1"}]
    assert warnings == []


def test_signals_to_dynamo_pass(lone_programs: Programs) -> None:
    """Dynamo traces again after a restart, and leaves a frame alone when it is asked to."""
    ours = """
    calls.append(1)
    if len(calls) == 1:
        raise torch._dynamo.exc.UnspecializeRestartAnalysis(restart_reason="test")
    if len(calls) == 3:
        raise torch._dynamo.exc.SkipFrame("test")
    return gm.forward"""
    value, warnings = _run(lone_programs, ours, "calls = []\nshow(both(), len(calls), len(stock))")
    assert value == [True, 3, 0]
    assert warnings == []


def test_an_interrupt_passes(lone_programs: Programs) -> None:
    then = "try:\n    both()\nexcept KeyboardInterrupt:\n    show('interrupted', len(stock))"
    value, _ = _run(lone_programs, "raise KeyboardInterrupt", then)
    assert value == ["interrupted", 0]


def test_the_users_own_error_is_the_users(lone_programs: Programs) -> None:
    then = """
def bad(x): return x.view(2, 2)
seen = []
for function in (bad, torch.compile(bad)):
    try:
        function(x)
    except Exception as error:
        seen.append("invalid for input of size" in str(error))
show(seen)"""
    value, _ = _run(lone_programs, "return gm.forward", then)
    assert value == [[True, True]]


@pytest.mark.parametrize(
    "returned", ["args[0]", "(args[0], args[0], args[0])", "(1,)", "(None,)", "args[0].sum()", "[args[0]] * 2"]
)
def test_wrong_outputs_are_noticed(lone_programs: Programs, returned: str) -> None:
    then = """
try:
    torch.compile(f)(x)
except Exception as error:
    show(type(error).__name__, "NEURONCACHE=0" in str(error))"""
    value, _ = _run(lone_programs, f"return lambda *args: {returned}", then)
    assert value == ["OutputMismatch", True]


def test_outputs_are_checked_once(lone_programs: Programs) -> None:
    ours = """
    def function(*arguments):
        calls.append(1)
        return gm(*arguments)
    return function"""
    then = """
calls = []
c = torch.compile(f)
same = all(bool(torch.equal(c(x), f(x))) for _ in range(3))
show(same, len(calls), neuroncache.stats()["entries"])"""
    value, _ = _run(lone_programs, ours, then)
    assert value == [True, 3, 1]


def test_strict_raises(lone_programs: Programs) -> None:
    then = "try:\n    both()\nexcept Exception as error:\n    show('a fault' in str(error), len(stock))"
    value, _ = _run(lone_programs, "raise ValueError('a fault')", then, NEURONCACHE_STRICT="1")
    assert value == [True, 0]


def test_another_torch_is_left_alone(lone_programs: Programs) -> None:
    then = "backend.SUPPORTED_TORCH = ('9.9.',)\nshow(both(), len(stock), neuroncache.stats()['bypass_reasons'])"
    value, warnings = _run(lone_programs, "return gm.forward", then)
    assert value == [True, 2, {"torch_version": 2}]
    assert warnings == []


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
    assert 1 <= len(warnings) <= 2, warnings
    if fault == "badblob":
        assert counters.snapshot()["bypass_reasons"] == {"load_failed": 2}


def test_a_full_or_foreign_home_is_no_obstacle(lone_programs: Programs, tmp_path: Path) -> None:
    """No daemon, no socket directory and no home that could be written."""
    code = PRELUDE + "show(both(), len(stock) > 0)\n"
    env = {"NEURONCACHE_SOCKET": "/proc/none/d.sock", "HOME": "/proc/none", "XDG_CONFIG_HOME": "/proc/none"}
    result = lone_programs.run(code, env=env)
    assert result.value[0] is True
