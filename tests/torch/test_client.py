"""The client of the daemon's protocol, against a real daemon where there is one."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import FAKE, ROOT, Daemon, Programs, real_daemon
from neuroncache import client as client_module
from neuroncache import config
from neuroncache.client import Client, Lease, action_key
from neuroncache.errors import BlobError, DaemonUnavailable, ProtocolError

PARTS = [("b", "2"), ("a", "1")]


def _lease(client: Client, parts: list[tuple[str, str]] = PARTS) -> Lease:
    key = action_key(parts)
    answer = client.acquire(key, {"intent": "build", "kind": "graph", "parts": parts})
    assert answer["state"] == "lease"
    lease = answer["lease"]
    return Lease(key, lease["id"], lease["fence"], lease["ttl_ms"] / 1000, lease["heartbeat_ms"] / 1000)


def _manifest(lease: Lease, digest: str, size: int) -> dict[str, object]:
    return {
        "v": 1,
        "key": lease.key,
        "kind": "graph",
        "namespace": "default",
        "label": "t",
        "model": "",
        "compiler": "none",
        "created_ms": 1,
        "build_ms": 1,
        "peak_rss_bytes": 1,
        "producer": {"host": "h", "pid": 1, "program": "p", "version": "0"},
        "parts": sorted([list(part) for part in PARTS]),
        "outputs": [{"name": "o", "digest": digest, "size": size, "mode": 0o644}],
        "meta": {"x": "y"},
        "signature": None,
    }


def test_key_is_the_one_that_the_protocol_describes() -> None:
    encoded = b"neuroncache-action-v1\0"
    for name, value in ((b"a", b"1"), (b"b", b"2")):
        encoded += len(name).to_bytes(4, "little") + name + len(value).to_bytes(8, "little") + value
    assert action_key(PARTS) == hashlib.sha256(encoded).hexdigest()
    assert action_key(list(reversed(PARTS))) == action_key(PARTS)
    with pytest.raises(ValueError, match="two key parts"):
        action_key([("a", "1"), ("a", "2")])


def test_build_publish_and_hit(daemon: Daemon) -> None:
    client = daemon.client()
    lease = _lease(client)
    small, large = b"small", os.urandom(300_000)
    for data in (small, large):
        digest = client.put_blob(data, lease=lease, compress=False)
        assert client.get_blob(digest, len(data)) == data
    client.heartbeat(lease)
    manifest = _manifest(lease, hashlib.sha256(large).hexdigest(), len(large))
    assert client.commit(lease, manifest)["published"]
    answer = client.acquire(lease.key, {"intent": "build"})
    assert answer["state"] == "hit"
    assert answer["manifest"]["meta"] == {"x": "y"}
    blob = answer["blobs"]["o"]
    assert Path(blob["path"]).read_bytes() == large
    assert daemon.counters()["hits"] == 1


def test_errors_of_the_daemon_are_told(daemon: Daemon) -> None:
    client = daemon.client()
    with pytest.raises(BlobError):
        client.get_blob("0" * 64, 10)
    with pytest.raises(ProtocolError):
        client.commit(Lease("0" * 64, "no", 1, 1, 1), {})
    assert client.hello()["protocol"]["min"] == 1


def test_a_new_daemon_is_met_on_the_same_client(daemon: Daemon) -> None:
    client = daemon.client()
    client.hello()
    daemon.kill()
    daemon.start()
    assert client.hello()["protocol"]


@pytest.mark.parametrize("fault", ["garbage", "close", "old"])
def test_a_faulty_daemon_is_left_alone(faulty: Callable[[str], Daemon], fault: str) -> None:
    client = Client(str(faulty(fault).socket), trust_any_owner=True)
    with pytest.raises(DaemonUnavailable):
        client.acquire("0" * 64, {"intent": "build"})
    assert client.down
    started = time.monotonic()
    with pytest.raises(DaemonUnavailable):
        client.hello()
    assert time.monotonic() - started < 1, "the breaker must answer at once"


def test_a_daemon_that_does_not_answer_costs_one_timeout(short_dir: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(short_dir / "s"))
    listener.listen()
    client = Client(str(short_dir / "s"), trust_any_owner=True, request_timeout=0.2)
    with pytest.raises(DaemonUnavailable, match="no answer"):
        client.hello()
    with pytest.raises(DaemonUnavailable):
        client.hello()
    listener.close()


def test_a_socket_of_somebody_else_is_refused(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module.os, "getuid", lambda: 4242)
    monkeypatch.setattr(client_module.struct, "unpack", lambda *_: (1, 77, 1))
    with pytest.raises(DaemonUnavailable, match="user 77"):
        Client(str(daemon.socket)).hello()


def test_too_long_a_path_says_so() -> None:
    with pytest.raises(DaemonUnavailable, match="NEURONCACHE_SOCKET"):
        Client("/tmp/" + "x" * 200, trust_any_owner=True).hello()


def test_an_interrupt_passes_and_leaves_the_client_usable(daemon: Daemon) -> None:
    client = daemon.client()
    lease = _lease(client)
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        client.acquire(lease.key, {"intent": "build"}, wait_s=20)
    client.fail(lease, "cancelled", "test")
    assert client.hello()["protocol"]


def test_a_forked_child_has_connections_of_its_own(daemon: Daemon) -> None:
    client = daemon.client()
    client.hello()
    (connection,) = client._idle
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if not client._idle and client.hello()["protocol"] else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert client._idle == [connection]
    assert client.hello()["protocol"], "the parent's connection must still work"


def test_threads_do_not_share_a_connection(daemon: Daemon) -> None:
    client = daemon.client()
    wrong: list[object] = []

    def ask() -> None:
        for _ in range(20):
            if client.hello()["protocol"]["max"] < 1:
                wrong.append(1)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_daemon_is_started_once_when_it_is_needed(lone_programs: Programs, short_dir: Path) -> None:
    """Eight processes at once find no daemon; one serves them all, outlives them, and is nobody's child."""
    program = real_daemon() or FAKE
    env = {
        "NEURONCACHE_AUTOSTART": "1",
        "NEURONCACHE_SOCKET": str(short_dir / "run" / "d.sock"),
        "NEURONCACHE_DIR": str(short_dir / "store"),
        "NEURONCACHE_DAEMON_PATH": str(program),
        "NEURONCACHE_CONNECT_TIMEOUT": "20s",
        "NEURONCACHE_NAMSPACE": "misspelt, which a daemon refuses and a client only warns of",
    }
    code = """
        import json, os
        from neuroncache.client import default_client
        print(json.dumps(default_client().hello()["pid"]))
    """
    started = [lone_programs.start(code, env=env) for _ in range(8)]
    pids = {program.wait().value for program in started}
    assert len(pids) == 1
    (pid,) = pids
    try:
        assert os.getsid(pid) not in {program.process.pid for program in started}
    finally:
        os.kill(pid, signal.SIGTERM)


def test_no_daemon_to_start_is_one_warning(lone_programs: Programs, short_dir: Path) -> None:
    code = """
        import json
        from neuroncache.cache import Built, Cache
        values = [
            Cache().obtain("graph", [("k", str(i))], label="t", compiler="c", build=lambda: Built(7, {}), load=None)
            for i in range(3)
        ]
        print(json.dumps(values))
    """
    result = lone_programs.run(
        code, env={"NEURONCACHE_AUTOSTART": "1", "NEURONCACHE_DAEMON_PATH": str(short_dir / "no")}
    )
    assert result.value == [7, 7, 7]
    assert len(result.warnings) <= 2, result.err


def test_settings_are_those_of_the_common_table() -> None:
    table = (ROOT / "base/settings_table.cpp").read_text()
    for name in config._TABLE:
        assert f'{{"{name}", ' in table or name == "enabled", f"{name} is not in base/settings_table.cpp"
    import re

    for name in re.findall(r'^ *\{"([a-z_]+)",', table, re.MULTILINE):
        assert name in config._TABLE or name in config._OTHERS, f"{name} would be called misspelt"


def test_misspelt_settings_are_told_once(lone_programs: Programs, short_dir: Path) -> None:
    (short_dir / "c.toml").write_text('namespace = "team"\nwait_timeot = "3s"\n')
    code = """
        import json, neuroncache
        print(json.dumps([neuroncache.config.namespace, neuroncache.config.wait_timeout, neuroncache.config.strict]))
    """
    env = {"NEURONCACHE_CONFIG": str(short_dir / "c.toml"), "NEURONCACHE_STRCT": "1", "NEURONCACHE_WAIT_TIMEOUT": "2m"}
    result = lone_programs.run(code, env=env)
    assert result.value == ["team", 120.0, False]
    assert sum("wait_timeout" in line for line in result.warnings) == 1
    assert sum("'strict'" in line for line in result.warnings) == 1


def test_settings_that_anybody_may_have_written_are_ignored(lone_programs: Programs, short_dir: Path) -> None:
    path = short_dir / "c.toml"
    path.write_text('namespace = "team"\n')
    path.chmod(0o602)
    code = "import json, neuroncache; print(json.dumps(neuroncache.config.namespace))"
    result = lone_programs.run(code, env={"NEURONCACHE_CONFIG": str(path)})
    assert result.value == "default"
    assert sum("who writes it decides what runs" in line for line in result.warnings) == 1
    path.chmod(0o600)
    assert lone_programs.run(code, env={"NEURONCACHE_CONFIG": str(path)}).value == "team"


def test_settings_are_checked_when_assigned() -> None:
    import neuroncache
    from neuroncache.errors import SettingError

    try:
        neuroncache.config.wait_timeout = "1.5s"  # type: ignore[assignment]
        assert neuroncache.config.wait_timeout == 1.5
        with pytest.raises(SettingError, match="did you mean 'namespace'"):
            neuroncache.config.namspace = "x"  # type: ignore[attr-defined]
        with pytest.raises(SettingError):
            neuroncache.config.cpu_class = "pentium"
    finally:
        config.reload()
