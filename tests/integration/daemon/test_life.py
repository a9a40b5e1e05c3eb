"""Start, restart, end."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_support import Home, digest, eventually, key_of


def test_sixty_four_simultaneous_starts_leave_one_daemon(home: Home) -> None:
    starters = [
        subprocess.Popen(
            home.command("--detach"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=home.environment()
        )
        for _ in range(64)
    ]
    said = [process.communicate(timeout=120) for process in starters]
    assert [process.returncode for process in starters] == [0] * 64
    assert said == [(b"", b"")] * 64
    assert eventually(lambda: len(home.pids()) == 1)  # those that were too late may still be on their way out
    assert home.client().get("/v1/hello")["pid"] == home.pids()[0]


def test_a_detached_daemon_leaves_its_starter_alone(home: Home) -> None:
    # An open pipe of the starter's must not keep its reader waiting.
    read, write = os.pipe()
    os.set_inheritable(write, True)
    done = subprocess.run(
        home.command("--detach"), close_fds=False, capture_output=True, timeout=120, env=home.environment()
    )
    os.close(write)
    assert done.returncode == 0
    assert os.read(read, 1) == b""
    (pid,) = home.pids()
    assert os.getsid(pid) != os.getsid(0)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.readlink(f"/proc/{pid}/fd/2") == "/dev/null"
    assert (home.store / "daemon.log").read_text()
    os.kill(pid, signal.SIGHUP)  # as a closing terminal does
    assert home.client().get("/v1/hello")["pid"] == pid


def test_a_start_that_fails_says_why(home: Home) -> None:
    home.store.write_text("not a directory")
    done = home.detach()
    assert done.returncode == 1
    assert str(home.store) in done.stderr
    assert eventually(lambda: home.pids() == [])  # it told its starter a moment before it ended


def test_wrong_flags_are_named(home: Home) -> None:
    done = home.detach("--max-byte", "1GiB")
    assert done.returncode == 2
    assert "--max-bytes" in done.stderr
    done = home.detach("--lease-ttl", "soon")
    assert done.returncode == 2
    assert "lease" in done.stderr


def test_help_and_version() -> None:
    from daemon_support import PROGRAM

    help_text = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--detach" in help_text and "--max-bytes" in help_text
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith("neuroncached ")


def test_a_second_daemon_leaves_quietly(home: Home) -> None:
    home.start()
    second = home.start(wait=False)
    assert second.wait(60) == 0
    assert len(home.pids()) == 1


def test_a_second_daemon_on_the_same_store_is_refused(home: Home) -> None:
    home.start()
    other = Home()
    other.store = home.store
    try:
        process = other.start(wait=False)
        assert process.wait(60) == 1
        assert "store" in other.log.read_text()
    finally:
        other.clean()


def test_a_killed_daemon_is_replaced_and_nothing_acknowledged_is_lost(home: Home) -> None:
    daemon = home.start()
    client = home.client()
    data = os.urandom(200_000)
    client.build("kept", {"lib.so": data, "note": b"n"})
    lease = client.acquire("open")["lease"]
    ticket = home.client().acquire("open")["ticket"]
    daemon.kill()
    daemon.wait()
    assert Path(home.socket).exists(), "a stale socket stays behind"
    home.start()
    client = home.client()
    hit = client.acquire("kept")
    assert hit["state"] == "hit"
    assert Path(hit["blobs"]["lib.so"]["path"]).read_bytes() == data
    assert [one["id"] for one in client.get("/v1/leases")["leases"]] == [lease["id"]]
    assert home.client().acquire("open", ticket=ticket)["state"] == "building"
    beat = client.call("POST", f"/v1/leases/{lease['id']}/heartbeat", {"key": key_of("open"), "fence": lease["fence"]})
    assert beat.status == 200
    assert client.commit("open", lease, {"out": b"x"}).status == 201
    assert client.acquire("another")["lease"]["fence"] > lease["fence"]


def test_counters_survive_a_restart(home: Home) -> None:
    daemon = home.start()
    client = home.client()
    client.build("a")
    client.acquire("a")
    before = client.counters()
    daemon.terminate()
    assert daemon.wait(60) == 0
    home.start()
    after = home.client().counters()
    for name in ("lookups", "hits", "builds", "compile_seconds_saved", "entries"):
        assert after[name] == before[name], name


def test_a_builder_that_died_with_the_daemon_loses_its_lease(home: Home) -> None:
    daemon = home.start()
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r});"
        f"from daemon_support import Client; print(Client({home.socket!r}).acquire('a')['state'])"
    )
    daemon_pid = daemon.pid
    os.kill(daemon_pid, signal.SIGCONT)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "lease"
    daemon.kill()
    daemon.wait()
    home.start()
    assert home.client().get("/v1/leases")["leases"] == []


def test_idle_exit_waits_for_attached_clients(home: Home) -> None:
    daemon = home.start("--idle-exit", "1s")
    attached = home.client()
    attached.get("/v1/hello")
    other = home.start("--idle-exit", "1s", "--socket", home.socket + "2", "--dir", str(home.store) + "2", wait=False)
    assert other.wait(60) == 0, "with nobody attached it leaves"
    assert daemon.poll() is None, "with a client attached it stays"
    attached.close()
    assert daemon.wait(60) == 0
    assert not Path(home.socket).exists()


def test_idle_exit_waits_for_leases(home: Home) -> None:
    daemon = home.start("--idle-exit", "1s", "--lease-ttl", "3s")
    client = home.client()
    client.acquire("a")
    client.close()
    assert daemon.wait(60) == 0
    assert "nobody was here" in home.log_text()


def test_drain_lets_running_uploads_end(home: Home) -> None:
    daemon = home.start()
    data = os.urandom(2 << 20)
    raw = home.raw()
    raw.send(f"PUT /v1/blobs/{digest(data)} HTTP/1.1\r\nContent-Length: {len(data)}\r\n\r\n".encode())
    raw.send(data[:1000])
    client = home.client()
    assert eventually(lambda: client.get("/v1/stats")["limits"]["reserved"] > 0)
    builder = home.client()
    builder.acquire("a")
    waiting: list[Any] = []
    waiter = home.client()
    thread = threading.Thread(target=lambda: waiting.append(waiter.acquire("a", wait_ms=20_000)))
    thread.start()
    assert eventually(lambda: client.get("/v1/stats")["health"]["tickets"] == 1)
    daemon.terminate()
    thread.join()
    assert waiting[0]["state"] == "building"
    assert eventually(lambda: not home.answers()), "no new connections"
    raw.send(data[1000:])
    answer = raw.answer()
    assert answer.status == 201
    assert answer.headers["Connection"] == "close"
    assert daemon.wait(60) == 0


def test_drain_ends_after_its_time(home: Home) -> None:
    daemon = home.start("--drain", "1s")
    raw = home.raw()
    raw.send(f"PUT /v1/blobs/{'0' * 64} HTTP/1.1\r\nContent-Length: 1000\r\n\r\nhalf".encode())
    client = home.client()
    assert eventually(lambda: client.get("/v1/stats")["limits"]["reserved"] > 0)
    daemon.terminate()
    assert daemon.wait(60) == 0
    assert raw.ended()


def test_a_second_signal_ends_at_once(home: Home) -> None:
    daemon = home.start("--drain", "10m")
    raw = home.raw()
    raw.send(f"PUT /v1/blobs/{'0' * 64} HTTP/1.1\r\nContent-Length: 1000\r\n\r\nhalf".encode())
    client = home.client()
    assert eventually(lambda: client.get("/v1/stats")["limits"]["reserved"] > 0)
    daemon.terminate()
    assert eventually(lambda: not home.answers())
    daemon.terminate()
    assert daemon.wait(60) == 1
    home.start()
    assert home.client().get("/v1/stats")["limits"]["reserved"] == 0


def test_shutdown_by_request_and_hand_over_to_the_next(home: Home) -> None:
    daemon = home.start()
    client = home.client()
    pid = client.get("/v1/hello")["pid"]
    answer = client.call("POST", "/v1/shutdown", {"drain_ms": 1000})
    assert answer.json == {"draining": True, "pid": pid}
    # Started while the old one may still be leaving: waits for its place, then takes it.
    assert home.detach().returncode == 0
    assert home.client().get("/v1/hello")["pid"] != pid
    assert daemon.wait(60) == 0


def test_hangup_reloads_live_settings_and_reopens_the_log(home: Home) -> None:
    config = home.dir / "config.toml"
    log = home.dir / "own.log"
    config.write_text('lease_ttl = "20s"\n')
    daemon = home.start("--config", str(config), "--log-file", str(log))
    client = home.client()
    assert client.acquire("a")["lease"]["ttl_ms"] == 20_000
    config.write_text('lease_ttl = "25s"\nio_threads = 7\n')
    log.rename(home.dir / "old.log")
    daemon.send_signal(signal.SIGHUP)
    assert eventually(lambda: log.exists() and "reloaded" in log.read_text())
    assert client.acquire("b")["lease"]["ttl_ms"] == 25_000
    assert "io_threads changes with the next start" in log.read_text()
    config.write_text("lease_ttl = [")
    daemon.send_signal(signal.SIGHUP)
    assert eventually(lambda: "not reloaded" in log.read_text())
    assert client.acquire("c")["lease"]["ttl_ms"] == 25_000


def test_socket_activation_and_notification(home: Home) -> None:
    (home.dir / "run").mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(home.socket)
    listener.listen(16)
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(home.dir / "notify"))
    manager.settimeout(60)
    # The process that becomes the daemon must have the pid that LISTEN_PID names.
    child = os.fork()
    if child == 0:
        os.dup2(listener.fileno(), 3)
        environment = {
            **home.environment(),
            "LISTEN_PID": str(os.getpid()),
            "LISTEN_FDS": "1",
            "NOTIFY_SOCKET": str(home.dir / "notify"),
        }
        os.execve(home.command()[0], home.command(), environment)
    client = home.client()  # connects before the daemon serves: it waits in the backlog
    assert client.get("/v1/hello")["pid"] == child
    assert manager.recv(100) == b"READY=1"
    client.close()
    os.kill(child, signal.SIGTERM)
    assert manager.recv(100) == b"STOPPING=1"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Path(home.socket).exists(), "the socket is systemd's, not ours"


def test_a_handed_over_descriptor_must_be_a_listener(home: Home) -> None:
    child = os.fork()
    if child == 0:
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 3)
        os.dup2(null, 2)
        environment = {**home.environment(), "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
        os.execve(home.command()[0], home.command(), environment)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_exit_with_parent(home: Home) -> None:
    command = home.command("--exit-with-parent")
    code = f"import subprocess, sys; subprocess.Popen({command!r}); sys.stdin.read()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env=home.environment())
    assert eventually(home.answers)
    parent.kill()
    parent.wait()
    assert eventually(lambda: home.pids() == [])


def test_a_socket_path_that_is_too_long_is_refused(home: Home) -> None:
    home.socket = str(home.dir / ("x" * 120))
    done = home.detach()
    assert done.returncode == 1
    assert "NEURONCACHE_SOCKET" in done.stderr


def test_a_limit_on_file_sizes_ends_uploads_not_the_daemon(home: Home) -> None:
    home.start()
    (pid,) = home.pids()
    limit = 1 << 20
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]))
    client = home.client()
    refused = client.put_blob(os.urandom(2 * limit), "?compress=never")
    assert refused.code == "too_large"
    assert "ulimit -f" in refused.json["error"]["action"]
    assert home.pids() == [pid]
    home.client().build("a", {"lib.so": os.urandom(100_000)})


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_everything_is_private(home: Home) -> None:
    home.start()
    client = home.client()
    client.build("a", {"lib.so": os.urandom(100_000)})
    for path in (Path(home.socket), home.store, *home.store.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
