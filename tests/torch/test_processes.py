"""Real graphs in several processes at once: one compiles, and all compute the same."""

from __future__ import annotations

import signal
import time
from typing import Any

from conftest import Daemon, Programs

SCRIPT = """
    import json, sys, torch
    import neuroncache
    neuroncache.enable()  # what an installation does by itself
    torch.manual_seed(0)
    weight = torch.randn(8, 4, requires_grad=True)
    x = torch.randn(3, 8)
    @torch.compile
    def f(x):
        return (x @ weight).sin().sum(1)
    print("start", flush=True)
    y = f(x)
    y.sum().backward()
    kinds = neuroncache.stats()["kinds"]
    print(json.dumps([y.tolist(), weight.grad.sum().item(), kinds.get("graph", {}), kinds.get("aot", {})]))
"""


def _sum(values: list[Any], index: int, name: str) -> int:
    return sum(value[index].get(name, 0) for value in values)


def test_four_at_once_compile_once_and_the_fifth_nothing(daemon: Daemon, programs: Programs) -> None:
    started = [programs.start(SCRIPT) for _ in range(4)]
    values = [program.wait(600).value for program in started]
    assert all(value[:2] == values[0][:2] for value in values)
    assert _sum(values, 2, "builds") == 2, "one forward and one backward graph"
    assert _sum(values, 3, "builds") == 1
    fifth = programs.run(SCRIPT, env={"PATH": "/nowhere"}).value
    assert fifth[:2] == values[0][:2]
    assert (fifth[2].get("builds", 0), fifth[3]) == (0, {"hits": 1})
    counts = daemon.counters()
    assert counts["builds"] == 3
    assert counts["lookups"] == sum(counts[name] for name in ("hits", "waits", "builds", "failures", "bypasses"))


def test_the_compiling_process_killed(daemon: Daemon, programs: Programs) -> None:
    first = programs.start(SCRIPT)
    first.wait_for("start")
    deadline = time.monotonic() + 120
    while not daemon.counters()["builds"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.process.send_signal(signal.SIGSTOP)  # so that it cannot finish before it is killed
    second = programs.start(SCRIPT)
    second.wait_for("start")
    first.process.send_signal(signal.SIGKILL)
    value = second.wait(600).value
    assert (value[2], value[3]) == ({"builds": 2}, {"builds": 1})


def test_data_loader_workers_compile(daemon: Daemon, programs: Programs) -> None:
    """Forked workers compile while the parent has compiled and holds connections; all get the same."""
    code = """
        import json, torch
        import neuroncache
        neuroncache.enable()

        @torch.compile
        def scale(x):
            return x * 2 + 1

        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                return scale(torch.full((3,), float(index)))

        scale(torch.ones(5))
        rows = [row.tolist() for row in torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=2)]
        print(json.dumps([rows, scale(torch.ones(3)).tolist()]))
    """
    rows, own = programs.start(code).wait(600).value
    assert rows == [[2.0 * index + 1] * 3 for index in range(4)]
    assert own == [3.0] * 3
