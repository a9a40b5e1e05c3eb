"""One build per artifact among processes, threads and forks, whatever is killed. No torch: builds here are sleeps."""

from __future__ import annotations

import io
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import Daemon, Programs
from neuroncache import config, counters
from neuroncache.artifact import Built, Hit
from neuroncache.cache import Cache
from neuroncache.errors import LoadRefused, Unsupported
from neuroncache.progress import Progress

# Prints what it obtained and its counters; the build takes argv[2] seconds and leaves a mark in argv[1].
WORKER = """
    import json, os, sys, time
    from neuroncache import counters
    from neuroncache.cache import Built, Cache

    def build():
        with open(sys.argv[1], "a") as marks:
            marks.write(f"{os.getpid()}\\n")
        print("building", flush=True)
        time.sleep(float(sys.argv[2]))
        return Built("v", {"o": b"v" * 1000})

    value = Cache().obtain(
        "graph", [("k", "1")], label="t", compiler="c", build=build, load=lambda hit: hit.data("o").decode()[:1]
    )
    print(json.dumps([value, counters.snapshot()]))
"""


def _counts(results: list[list[object]], name: str) -> int:
    return sum(result[1][name] for result in results)  # type: ignore[index]


def test_four_processes_build_once(daemon: Daemon, programs: Programs, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    started = [programs.start(WORKER, str(marks), "1") for _ in range(4)]
    results = [program.wait().value for program in started]
    assert [result[0] for result in results] == ["v"] * 4
    assert len(marks.read_text().splitlines()) == 1
    assert _counts(results, "builds") == 1
    assert _counts(results, "hits") + _counts(results, "waits") == 3
    counts = daemon.counters()
    assert counts["builds"] == 1
    assert counts["lookups"] == 4 == counts["hits"] + counts["waits"] + counts["builds"]


def test_another_takes_over_when_the_builder_is_killed(daemon: Daemon, programs: Programs, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    first = programs.start(WORKER, str(marks), "60")
    first.wait_for("building")
    others = [programs.start(WORKER, str(marks), "0.2") for _ in range(2)]
    time.sleep(0.5)
    first.kill()
    results = [program.wait(60).value for program in others]
    assert [result[0] for result in results] == ["v", "v"]
    assert len(marks.read_text().splitlines()) == 2, "the killed one and the one after it"


def test_daemon_restarted_while_one_builds_and_one_waits(daemon: Daemon, programs: Programs, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    first = programs.start(WORKER, str(marks), "3")
    first.wait_for("building")
    second = programs.start(WORKER, str(marks), "3")
    time.sleep(0.5)
    daemon.kill()
    daemon.start()
    results = [program.wait(60).value for program in (first, second)]
    assert [result[0] for result in results] == ["v", "v"]
    third = programs.run(WORKER, str(marks), "3").value
    assert third[1]["hits"] == 1, "one of the two must have published"


def test_daemon_gone_for_good_while_one_builds_and_one_waits(
    daemon: Daemon, programs: Programs, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    first = programs.start(WORKER, str(marks), "2")
    first.wait_for("building")
    second = programs.start(WORKER, str(marks), "0.1")
    time.sleep(0.5)
    daemon.kill()
    results = [program.wait(60) for program in (first, second)]
    assert [result.value[0] for result in results] == ["v", "v"]
    assert all(len(result.warnings) == 1 for result in results), [result.err for result in results]


def test_forked_and_spawned_children(daemon: Daemon, programs: Programs, tmp_path: Path) -> None:
    """Children of a process that already talks to the daemon, as data loaders make them."""
    code = """
        import json, multiprocessing, sys
        from neuroncache import counters
        from neuroncache.cache import Built, Cache

        def obtain(name):
            return Cache().obtain(
                "graph", [("k", name)], label="t", compiler="c",
                build=lambda: Built(name, {"o": name.encode()}), load=lambda hit: hit.data("o").decode(),
            )

        if __name__ == "__main__":
            values = [obtain("a")]
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(2) as pool:
                    values += pool.map(obtain, ["a", "b", "a", "b"])
            values.append(obtain("b"))
            print(json.dumps([values, counters.snapshot()]))
    """
    values, counts = programs.run(code).value
    assert values == ["a", *"abab", *"abab", "b"]
    assert (counts["builds"], counts["hits"]) == (1, 1)
    assert daemon.counters()["builds"] == 2


@pytest.fixture
def here(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache of this process, with `daemon` behind it."""
    for name, value in daemon.env.items():
        monkeypatch.setenv(name, value)
    config.reload()
    counters.reset()
    return Cache(daemon.client())


def _obtain(cache: Cache, key: str, built: Built[str], load: object = None) -> str:
    def from_store(hit: Hit) -> str:
        return hit.data("o").decode()

    return cache.obtain(
        "graph",
        [("k", key)],
        label="t",
        compiler="c",
        build=lambda: built,
        load=load or from_store,  # type: ignore[arg-type]
    )


def test_threads_build_once(here: Cache) -> None:
    values: list[str] = []

    def work() -> None:
        def build() -> Built[str]:
            time.sleep(0.3)
            return Built("v", {"o": b"v"})

        values.append(
            here.obtain(
                "graph", [("k", "t")], label="t", compiler="c", build=build, load=lambda h: h.data("o").decode()
            )
        )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert values == ["v"] * 4
    assert counters.snapshot()["builds"] == 1


def test_nested_builds_and_their_times(here: Cache, daemon: Daemon) -> None:
    def outer() -> Built[str]:
        inner = here.obtain(
            "graph", [("k", "in")], label="i", compiler="c", build=slow, load=lambda h: h.data("o").decode()
        )
        return Built(inner + "!", {"o": inner.encode() + b"!"})

    def slow() -> Built[str]:
        time.sleep(0.4)
        return Built("in", {"o": b"in"})

    def obtain() -> str:
        return here.obtain(
            "aot", [("k", "out")], label="o", compiler="c", build=outer, load=lambda h: h.data("o").decode()
        )

    assert obtain() == "in!"
    assert obtain() == "in!"
    counts = counters.snapshot()
    assert counts["kinds"] == {"graph": {"builds": 1}, "aot": {"builds": 1, "hits": 1}}
    key = next(step for step in daemon_manifests(daemon) if step["kind"] == "aot")
    assert key["build_ms"] < 300, "the time of the inner build is the inner one's"


def daemon_manifests(daemon: Daemon) -> list[dict[str, object]]:
    from neuroncache.client import action_key

    client = daemon.client()
    answers = [client.acquire(action_key([("k", name)]), {"intent": "lookup"}) for name in ("in", "out")]
    return [answer["manifest"] for answer in answers]


def test_what_cannot_be_stored_is_not_waited_for(here: Cache) -> None:
    assert _obtain(here, "u", Built("v", None, refusal="why not")) == "v"
    assert _obtain(here, "u", Built("w", None, refusal="why not")) == "w"
    counts = counters.snapshot()
    assert (counts["builds"], counts["failures"]) == (2, 1)
    assert counts["bypass_reasons"] == {"uncacheable: why not": 1}


@pytest.mark.parametrize("error", [ValueError("broken"), Unsupported("op x"), MemoryError(), KeyboardInterrupt()])
def test_what_a_build_raises_passes(here: Cache, error: BaseException) -> None:
    def build() -> Built[str]:
        raise error

    for _ in range(2):
        with pytest.raises(type(error)):
            here.obtain("graph", [("k", "e")], label="t", compiler="c", build=build, load=lambda h: "")
    remembered = isinstance(error, (ValueError, Unsupported))
    assert counters.snapshot()["failures"] == (1 if remembered else 0)


def test_an_artifact_that_is_not_for_this_host_is_built_here(here: Cache, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(hit: Hit) -> str:
        raise LoadRefused("needs avx512")

    assert _obtain(here, "r", Built("v", {"o": b"v"})) == "v"
    for _ in range(3):
        assert _obtain(here, "r", Built("w", {"o": b"w"}), refuse) == "w"
    assert sum("needs avx512" in record.message for record in caplog.records if record.levelname == "WARNING") <= 1
    assert _obtain(here, "r", Built("x", {"o": b"x"})) == "v", "the stored one stays"


def test_wait_timeout_builds_without_the_cache(here: Cache, daemon: Daemon, programs: Programs, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    first = programs.start(WORKER, str(marks), "60")
    first.wait_for("building")
    second = programs.run(WORKER, str(marks), "0.1", env={"NEURONCACHE_WAIT_TIMEOUT": "500ms"})
    assert second.value[0] == "v"
    assert second.value[1]["bypass_reasons"] == {"wait_timeout": 1}
    assert daemon.counters()["bypasses"] == 1


def test_ctrl_c_ends_a_wait(programs: Programs, tmp_path: Path) -> None:
    import signal

    marks = tmp_path / "marks"
    first = programs.start(WORKER, str(marks), "60")
    first.wait_for("building")
    second = programs.start(WORKER, str(marks), "60")
    time.sleep(1)
    second.process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in second.wait(10).err


def test_paths_are_of_verified_files(here: Cache) -> None:
    data = bytes(range(256)) * 400
    seen: list[str] = []

    def load(hit: Hit) -> str:
        seen.append(hit.path("o"))
        return "loaded"

    assert _obtain(here, "p", Built("v", {"o": data}, uncompressed=frozenset("o"))) == "v"
    assert _obtain(here, "p", Built("w", None), load) == "loaded"
    assert Path(seen[0]).read_bytes() == data


def test_a_damaged_file_is_not_used(here: Cache, daemon: Daemon) -> None:
    data = bytes(range(256)) * 400
    seen: list[bytes] = []

    def load(hit: Hit) -> str:
        seen.append(Path(hit.path("o")).read_bytes())
        return "loaded"

    built = Built("v", {"o": data}, uncompressed=frozenset("o"))
    assert _obtain(here, "d", built) == "v"
    (path,) = [file for file in daemon.store.rglob("*") if file.is_file() and file.stat().st_size == len(data)]
    path.chmod(0o644)
    path.write_bytes(b"x" * len(data))
    assert _obtain(here, "d", built, load) in ("v", "loaded")
    assert all(content == data for content in seen)


@pytest.mark.parametrize(("terminal", "rank", "shown"), [(True, "0", True), (True, "3", False), (False, "0", False)])
def test_waiting_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, rank: str, shown: bool
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("LOCAL_RANK", rank)
    progress = Progress("llama forward")
    progress.show({"builder": {"pid": 7, "program": "train.py"}, "elapsed_s": 3.2, "usual_s": 30.0})
    progress.clear()
    assert ("process 7 (train.py) to build llama forward: 3 s of usually 30 s" in stream.getvalue()) == shown
    assert stream.getvalue().endswith("\r") == shown


def test_what_goes_without_the_cache_is_counted_where_it_is_in_use(here: Cache, daemon: Daemon) -> None:
    here.bypassed("unsupported")
    assert daemon.counters()["bypasses"] == 0, "a daemon that nobody needs is not called for this"
    _obtain(here, "b", Built("v", {"o": b"v"}))
    here.bypassed("unsupported")
    assert daemon.counters()["bypasses"] == 1
