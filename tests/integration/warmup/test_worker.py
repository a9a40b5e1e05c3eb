"""The worker: what is queued is built, once, whatever becomes of the worker."""

from __future__ import annotations

import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

from warmup_support import Warm
from wrapper_support import LIBEXEC, eventually


def queue(warm: Warm, *names: str, recording: str = "r", **env: str) -> None:
    """Records these modules and queues them, not built."""
    assert warm.verb("warmup", "--recording", recording, "--", *warm.modules(*names), **env).status == 0
    assert warm.verb("prune", "--kind", "neff").status == 0
    warm.log.unlink()
    queued = warm.call("POST", "/v1/queue", {"recording": recording})
    assert queued["queued"] == len(names), queued


def counts(warm: Warm) -> dict[str, int]:
    return {name: n for name, n in warm.call("GET", "/v1/queue")["counts"].items() if n}


def _more_than(warm: Warm, before: int) -> bool:
    return warm.compiles() > before


def serve(warm: Warm, *words: str, **env: str) -> tuple[int, dict[str, int], Any]:
    done = warm.verb("worker", "--queue", "--once", "--format", "json", *words, **env)
    report = warm.check(done, "worker")
    return done.status, {name: n for name, n in report["counts"].items() if n}, report


def test_what_is_queued_is_built_as_the_wrapper_would(warm: Warm) -> None:
    queue(warm, "a", "b", "c", NEURON_CC_FLAGS="-O1", NEURON_RT_VISIBLE_CORES="0")
    expected = {n: (warm.work / f"{n}.neff").read_bytes() for n in "abc"}
    # The worker's own flags do not count.
    status, built, report = serve(warm, "--jobs", "2", NEURON_CC_FLAGS="-O3")
    assert (status, built) == (0, {"built": 3})
    assert sorted(job["label"] for job in report["jobs"]) == ["a.pb", "b.pb", "c.pb"]
    assert warm.compiles() == 3 and counts(warm) == {"built": 3}
    for name in "abc":
        (warm.work / f"{name}.neff").unlink()
    status, found, _ = warm.json("replay", "--fail-on-miss", "--", *warm.modules("a", "b", "c"), NEURON_CC_FLAGS="-O1")
    assert (status, found) == (0, {"needed": 3, "there": 3})
    assert {n: (warm.work / f"{n}.neff").read_bytes() for n in "abc"} == expected
    assert serve(warm)[:2] == (0, {})
    assert not list(Path(warm.env["TMPDIR"]).glob("neuroncache-build-*"))


def test_a_killed_worker_leaves_its_job_to_another(warm: Warm) -> None:
    queue(warm, "a")
    worker = warm.start("worker", "--queue", STUB_SCRIPT=json.dumps({"delay": 60}))
    assert eventually(lambda: warm.compiles() == 1)
    compiler = int(warm.log.read_text().split()[1])
    worker.kill()
    worker.communicate()
    assert eventually(lambda: not Path(f"/proc/{compiler}").exists())
    assert eventually(lambda: counts(warm) == {"queued": 1})
    assert serve(warm)[:2] == (0, {"built": 1})
    # What the dead one left is cleared away by the next.
    assert not list(Path(warm.env["TMPDIR"]).glob("neuroncache-build-*"))


def test_a_killed_builder_is_an_attempt_and_the_worker_goes_on(warm: Warm) -> None:
    queue(warm, "a")
    script = json.dumps({"delay": 60})
    worker = warm.start("worker", "--queue", "--once", "--format", "json", STUB_SCRIPT=script)
    assert eventually(lambda: warm.compiles() == 1)
    (child,) = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    assert eventually(lambda: warm.compiles() == 2)
    jobs = warm.call("GET", "/v1/queue")["jobs"]
    assert [(job["attempts"], job["class"]) for job in jobs] == [(2, "killed")]
    worker.send_signal(signal.SIGINT)
    out, _ = worker.communicate(timeout=60)
    assert json.loads(out)["counts"] == {"built": 0, "failed": 1, "given_back": 1}


def test_sigterm_lets_builds_finish_and_sigint_gives_them_back(warm: Warm) -> None:
    queue(warm, "a", "b")
    script = json.dumps({"delay": 2})
    worker = warm.start("worker", "--queue", "--jobs", "1", STUB_SCRIPT=script)
    assert eventually(lambda: warm.compiles() == 1)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0
    assert counts(warm) == {"queued": 1, "built": 1} and warm.compiles("end") == 1
    for _ in range(4):  # as often as one likes: it is no attempt
        before = warm.compiles()
        slow = warm.start("worker", "--queue", STUB_SCRIPT=json.dumps({"delay": 60}))
        assert eventually(partial(_more_than, warm, before))
        slow.send_signal(signal.SIGINT)
        assert slow.wait(timeout=60) == 0
        assert counts(warm) == {"queued": 1, "built": 1}
    assert serve(warm)[:2] == (0, {"built": 1})


def test_failures_are_told_and_bad_luck_is_tried_again(warm: Warm) -> None:
    queue(warm, "bad")
    diagnostic = json.dumps({"exit": 70, "err": "ERROR: [NCC_EVRF001] operator not supported\n"})
    status, ended, report = serve(warm, STUB_SCRIPT=diagnostic)
    assert (status, ended, warm.compiles()) == (1, {"failed": 1}, 1)
    assert report["jobs"][0]["class"] == "deterministic" and "NCC_EVRF001" in report["jobs"][0]["message"]
    assert counts(warm) == {"failed": 1}
    queue(warm, "unlucky", recording="s")
    status, ended, report = serve(warm, STUB_SCRIPT=json.dumps({"exit": 1, "err": "No space left on device\n"}))
    assert (status, ended, warm.compiles()) == (1, {"failed": 3}, 3)
    assert counts(warm) == {"failed": 2}


def test_only_jobs_of_its_compiler_are_taken_and_never_the_wrapper_runs(warm: Warm) -> None:
    queue(warm, "a")
    other = warm.compiler("2.99.1.0+x")
    status, ended, report = serve(warm, "--compiler", str(other / "neuronx-cc"))
    assert (status, ended, report["compiler"]) == (0, {}, "neuronx-cc 2.99.1.0+x")
    # Of the same version, but of another package: not it.
    twin = warm.compiler(warm.version())
    assert serve(warm, "--compiler", str(twin / "neuronx-cc"))[:2] == (0, {})
    missing = warm.verb("worker", "--queue", "--once", "--compiler", "7.1")
    assert missing.status == 1 and warm.version() in missing.err
    wrapper = warm.verb("worker", "--queue", "--once", "--compiler", str(LIBEXEC / "neuronx-cc"))
    assert wrapper.status == 2 and "wrapper" in wrapper.err
    assert counts(warm) == {"queued": 1}
    # The wrapper may come first on PATH.
    assert serve(warm, PATH=f"{LIBEXEC}:{warm.env['PATH']}")[:2] == (0, {"built": 1})


def test_a_compiler_that_is_replaced_meanwhile_builds_nothing(warm: Warm) -> None:
    own = warm.compiler(warm.version())
    env = {"PATH": f"{own}:{warm.env['PATH']}"}
    queue(warm, "a", "b", **env)
    script = json.dumps({"delay": 2})
    worker = warm.start(
        "worker", "--queue", "--jobs", "1", "--idle", "1s", "--format", "json", **env, STUB_SCRIPT=script
    )
    assert eventually(lambda: warm.compiles() == 1)
    shutil.copy(own / "neuronx-cc", own / "new")
    with open(own / "new", "a") as file:
        file.write("# a patch\n")
    os.rename(own / "new", own / "neuronx-cc")
    out, _ = worker.communicate(timeout=60)
    assert json.loads(out)["counts"]["built"] == 1 and worker.returncode == 0
    assert counts(warm) == {"queued": 1, "built": 1}


def test_usage(warm: Warm) -> None:
    assert warm.verb("worker").status == 2
    assert warm.verb("worker", "--queue", "--jobs", "0").status == 2
    assert warm.verb("worker", "--queue", "--idle", "soon").status == 2


def test_a_daemon_that_is_replaced_under_a_worker(warm: Warm) -> None:
    queue(warm, "a")
    worker = warm.start("worker", "--queue", "--idle", "3s", "--format", "json", STUB_SCRIPT=json.dumps({"delay": 2}))
    assert eventually(lambda: warm.compiles() == 1)
    warm.kill_daemons()
    out, err = worker.communicate(timeout=90)
    assert json.loads(out)["counts"]["built"] == 1, err
    assert counts(warm) == {"built": 1} and warm.compiles() == 1
