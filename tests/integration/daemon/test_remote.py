"""The protocol over TCP: who gets in, for what, and what no caller can do or learn."""

from __future__ import annotations

import http.client
import os
import random
import resource
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_support import PATIENCE_S, Home, eventually, key_of, manifest, parts_of
from remote_support import RemoteHome, secret_lines, sha, sign

BIG = random.Random(1).randbytes(256 << 10)  # a file in the store, not compressed


@pytest.fixture(scope="module")
def far() -> Iterator[RemoteHome]:
    home = RemoteHome()
    home.cli("keys", "init", "--comment", "this host")
    home.token("--scope", "read", "--comment", "first")
    home.serve("--request-timeout", "1s", "--max-connections", "40")
    local = home.client()
    local.build("shared", {"big": BIG, "small": b"tiny"})
    local.close()
    yield home
    home.clean()


def known(home: RemoteHome, token: str) -> str:
    """The daemon looks at the file every second."""

    def admitted() -> bool:
        client = home.remote(token)
        try:
            return client.call("GET", "/v1/hello").status != 401
        finally:
            client.close()

    assert eventually(admitted)
    return token


def test_nobody_comes_in_without_a_token(far: RemoteHome) -> None:
    for token in ("", "nct_" + "0" * 64, "x" * 5000):
        answer = far.remote(token).call("GET", "/v1/hello")
        assert answer.status == 401 and answer.code == "denied", answer.body
        assert answer.headers["WWW-Authenticate"] == "Bearer" and answer.headers["Connection"] == "close"
    # What a stranger wants to send is not read at all, and paths tell nothing.
    answer = far.remote().call("PUT", f"/v1/blobs/{sha(BIG)}", BIG)
    assert answer.status == 401
    assert far.remote().call("GET", "/v1/nothing").status == 401


def test_a_reader_reads_and_learns_no_path(far: RemoteHome) -> None:
    client = far.remote(known(far, far.token("--scope", "read")))
    hello = client.get("/v1/hello")
    assert hello["store"]["path"] == ""
    hit = client.acquire("shared", intent="lookup")
    assert hit["state"] == "hit" and all(blob["path"] is None for blob in hit["blobs"].values())
    assert hit["blobs"]["small"]["inline"] is not None
    local = far.client()
    assert local.acquire("shared")["blobs"]["big"]["path"], "the daemon's own user gets paths, then and after"
    assert client.acquire("shared", intent="lookup")["blobs"]["big"]["path"] is None
    assert client.get(f"/v1/actions/{key_of('shared')}")["key"] == key_of("shared")
    assert client.call("GET", f"/v1/blobs/{sha(BIG)}").body == BIG
    assert client.call("HEAD", f"/v1/blobs/{sha(BIG)}").headers["Content-Length"] == str(len(BIG))
    assert client.get("/v1/stats")["counters"]["entries"] >= 1

    refused = [
        client.call("POST", f"/v1/actions/{key_of('new')}/acquire", {"intent": "build"}),
        client.call("PUT", f"/v1/blobs/{sha(b'x')}", b"x"),
        client.call("PUT", f"/v1/actions/{key_of('new')}?import=1", manifest("new", {})),
        client.call("POST", "/v1/shutdown", {"drain_ms": 0}),
        client.call("POST", "/v1/prune", {}),
        client.call("GET", "/v1/config"),
    ]
    assert [answer.status for answer in refused] == [403] * len(refused)
    assert str(far.store) not in client.call("GET", "/v1/stats").body.decode()
    client.close()
    local.close()


def test_what_comes_over_the_network_has_to_be_signed(far: RemoteHome) -> None:
    token = far.token("--scope", "write")
    client = far.remote(known(far, token))
    blobs = {"out": b"made elsewhere"}
    entry = manifest("signed", blobs)
    assert client.put_blob(blobs["out"]).status == 201
    target = f"/v1/actions/{key_of('signed')}?import=1"
    before = client.get("/v1/stats")["trust"]["refused"]
    assert client.call("PUT", target, entry).status == 403
    entry["signature"] = sign(far.dir, far.conf / "neuroncache/sign.key", entry, int(time.time() * 1000))
    forged = {**entry, "build_ms": entry["build_ms"] + 1}
    assert client.call("PUT", target, forged).code == "corrupt"
    after = client.get("/v1/stats")["trust"]["refused"]
    assert (after["unsigned"], after["bad_signature"]) == (before["unsigned"] + 1, before["bad_signature"] + 1)
    assert client.get("/v1/stats")["counters"]["entries"] >= 1
    assert client.call("PUT", target, entry).status == 201, "a refused one masks no good one"
    assert client.get(f"/v1/actions/{key_of('signed')}")["signature"] == entry["signature"]
    # A writer builds under a lease as anybody does, and still does not administer.
    assert client.acquire("to build", wait_ms=10_000)["state"] == "lease"
    assert client.call("POST", "/v1/shutdown", {"drain_ms": 0}).status == 403
    client.close()


def test_a_daemon_is_a_tier_for_those_who_trust_its_key(far: RemoteHome) -> None:
    token = far.dir / "token"
    token.write_text(known(far, far.token("--scope", "read")))
    host, port = far.address
    near = Home()
    (near.dir / "conf").mkdir(mode=0o700)
    try:
        options = f"layout=neuroncached&compression=none&read_only=true&token_file={token}&ca_file={far.conf}/ca.pem"
        keyring = near.dir / "conf" / "keyring"
        near.start("--tiers", f"https://{host}:{port}?{options}", "--trust-keys", str(keyring))
        client = near.client()
        assert client.acquire("shared", intent="lookup")["state"] == "miss", "its key is not trusted yet"
        assert client.get("/v1/stats")["trust"]["refused"]["unknown_key"] == 1
        ring = Path(far.cli("keys", "list")["keyring"])
        keyring.write_bytes(ring.read_bytes())
        keyring.chmod(0o644)

        def found() -> bool:
            return bool(client.acquire("shared", intent="lookup")["state"] == "hit")

        assert eventually(found)
        client.close()
    finally:
        near.clean()


def test_tokens_are_for_namespaces_and_end(far: RemoteHome) -> None:
    team = far.remote(known(far, far.token("--scope", "write", "--namespaces", "team-*")))
    assert team.get("/v1/hello")["version"]
    assert team.acquire("other", namespace="team-a", intent="lookup")["state"] == "miss"
    denied = [
        team.call("POST", f"/v1/actions/{key_of('x')}/acquire", {"intent": "lookup"}),
        team.call("POST", f"/v1/actions/{key_of('shared')}/acquire", {"intent": "lookup", "namespace": "team-a"}),
        team.call("GET", f"/v1/actions/{key_of('shared')}"),
        team.call("PUT", f"/v1/actions/{key_of('y')}?import=1", manifest("y", {})),
        team.call("GET", "/v1/stats"),
        team.call("GET", "/v1/entries"),
    ]
    assert [answer.status for answer in denied] == [403] * len(denied)
    miss = team.acquire("nearly", namespace="team-a", intent="lookup", parts=parts_of("nearly"))["miss"]
    assert miss["nearest"] is None, "which may be of any namespace"
    team.close()

    short = far.token("--scope", "read", "--expires-in", "0s")
    answer = far.remote(short).call("GET", "/v1/hello")
    assert answer.status == 401
    gone = known(far, far.token("--scope", "admin"))
    client = far.remote(gone)
    assert client.call("GET", "/v1/config").status == 200
    grant = next(g for g in far.cli("tokens", "list")["grants"] if g["scope"] == "admin")
    far.cli("tokens", "remove", grant["id"])
    assert eventually(lambda: far.remote(gone).call("GET", "/v1/hello").status == 401)
    client.close()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_tls_and_plain_text_are_refused(far: RemoteHome) -> None:
    old = far.tls()
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(far.address, timeout=PATIENCE_S) as plain, pytest.raises((ssl.SSLError, OSError)):
        old.wrap_socket(plain, server_hostname="127.0.0.1")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = far.tls()
        context.minimum_version = context.maximum_version = version
        with socket.create_connection(far.address, timeout=PATIENCE_S) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
                tls.sendall(b"GET /v1/hello HTTP/1.1\r\nHost: x\r\n\r\n")
                assert tls.recv(100).startswith(b"HTTP/1.1 401")
    with socket.create_connection(far.address, timeout=PATIENCE_S) as plain:
        plain.sendall(b"GET /v1/hello HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" not in plain.recv(1000)
    local = far.client()
    assert local.get("/v1/stats")["listener"]["failed_handshakes"] >= 2
    local.close()


def test_no_path_leads_out_of_the_store(far: RemoteHome) -> None:
    token = known(far, far.token("--scope", "admin"))
    for target in (
        "/v1/blobs/../../../../etc/passwd", "/v1/blobs/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/v1/blobs//etc/passwd",
        "/../../etc/passwd", f"/v1/blobs/{'0' * 63}/", "/v1/entries/..%2f..%2fSTORE", "/v1/recordings/..%2f..",
        "/v1/blobs/%00", "//etc/passwd",
    ):  # fmt: skip
        client = far.remote(token)
        answer = client.call("GET", target)
        assert answer.status in (400, 404) and b"root:" not in answer.body, (target, answer.body)
        client.close()
    name = "../../../../tmp/escaped"
    entry = manifest("escape", {})
    entry["outputs"] = [{"name": name, "digest": sha(b""), "size": 0, "mode": 0o644}]
    client = far.remote(token)
    assert client.call("PUT", f"/v1/actions/{key_of('escape')}?import=1", entry).status == 400
    client.close()


def test_a_blob_is_what_it_says_or_nothing(far: RemoteHome) -> None:
    client = far.remote(known(far, far.token("--scope", "write")))
    assert client.call("PUT", f"/v1/blobs/{sha(b'one')}", b"two").status == 422
    assert client.call("HEAD", f"/v1/blobs/{sha(b'one')}").status == 404
    # More than the disk has, announced: refused before a byte of it is sent.
    with far.raw_tls() as tls:
        tls.sendall(
            f"PUT /v1/blobs/{sha(b'huge')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n"
            f"Content-Length: {1 << 50}\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        assert tls.recv(1000).startswith((b"HTTP/1.1 413", b"HTTP/1.1 507"))
    # Bytes behind the announced end are the next request, and none.
    with far.raw_tls() as tls:
        tls.sendall(
            f"PUT /v1/blobs/{sha(b'abc')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n"
            f"Content-Length: 3\r\n\r\nabc{'A' * 40000}".encode()
        )
        first = tls.recv(4000)
        assert first.startswith(b"HTTP/1.1 201")
    assert client.call("GET", f"/v1/blobs/{sha(b'abc')}").body == b"abc"
    client.close()


def test_large_heads_and_slow_clients_are_dropped(far: RemoteHome) -> None:
    with far.raw_tls() as tls:
        tls.sendall(b"GET /v1/hello HTTP/1.1\r\nX: " + b"a" * 20000)
        assert tls.recv(1000).startswith(b"HTTP/1.1 431")
    with far.raw_tls() as tls:  # a head that never ends
        tls.sendall(b"GET /v1/hello HTTP/1.1\r\n")
        assert b"408" in tls.recv(1000)
        assert tls.recv(1000) == b""
    token = known(far, far.token("--scope", "read"))
    with far.raw_tls() as tls:  # answers that nobody reads
        tls.settimeout(PATIENCE_S)
        request = f"GET /v1/blobs/{sha(BIG)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        local = far.client()
        ended = local.get("/v1/stats")["listener"]
        try:
            for _ in range(100):  # 25 MB of answers; more than all buffers on the way
                tls.sendall(request)
        except OSError:
            pass
        assert eventually(lambda: local.get("/v1/stats")["listener"]["open"] < ended["open"] + 1)
        local.close()


def test_a_flood_leaves_local_clients_alone(far: RemoteHome) -> None:
    flood = []
    try:
        for _ in range(60):  # twenty are taken
            flood.append(socket.create_connection(far.address, timeout=PATIENCE_S))
        local = far.client()
        assert eventually(lambda: local.get("/v1/stats")["listener"]["turned_away"] >= 30)
        assert local.get("/v1/stats")["listener"]["open"] <= 20
        assert local.acquire("shared")["state"] == "hit"
        local.close()
    finally:
        for connection in flood:
            connection.close()
    # Served again afterwards.
    token = far.token("--scope", "read")

    def served() -> bool:
        try:
            return far.remote(token).call("GET", "/v1/hello").status == 200
        except (OSError, http.client.HTTPException):
            return False

    assert eventually(served)


def test_a_flood_leaves_local_clients_their_descriptors(home: Home) -> None:
    few = 256
    home.before_start = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
    home.start("--listen", "127.0.0.1:0", "--listen-plain")
    local = home.client()
    host, port = local.get("/v1/stats")["listener"]["address"].rsplit(":", 1)
    flood = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(few)]
    try:
        assert eventually(lambda: local.get("/v1/stats")["listener"]["accepted"] == few)
        assert local.get("/v1/stats")["listener"]["open"] <= few / 6
        for _ in range(50):
            other = home.client()
            assert other.get("/v1/hello")["pid"]
            other.close()
        assert "cannot accept" not in home.log_text()
    finally:
        for connection in flood:
            connection.close()
        local.close()


def test_no_core_file_is_left(home: Home) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def allow() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, unlimited)
        os.chdir(home.dir)

    home.before_start = allow
    process = home.start()
    process.send_signal(signal.SIGABRT)
    assert process.wait(PATIENCE_S) == -signal.SIGABRT
    assert [path.name for path in home.dir.iterdir() if path.name.startswith("core")] == []


def test_no_secret_is_told(far: RemoteHome) -> None:
    token = known(far, far.token("--scope", "admin", "--comment", "keep it"))
    client = far.remote(token)
    secrets = [token, token[4:], secret_lines(far.conf / "neuroncache/sign.key")]
    secrets += [line for line in (far.conf / "server.key").read_text().splitlines() if "-" not in line]
    texts = [
        client.call("GET", target).body.decode() for target in ("/v1/stats", "/v1/config", "/v1/hello", "/v1/misses")
    ]
    far.remote(token + "x").call("GET", "/v1/hello")
    texts.append(far.log_text())
    for pid in far.pids():
        for name in ("cmdline", "environ", "comm"):
            texts.append(Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace"))
    texts.append((far.conf / "neuroncache/tokens").read_text())
    for text in texts:
        assert not any(secret in text for secret in secrets)
    client.close()


def test_client_certificates() -> None:
    home = RemoteHome()
    try:
        home.cli("tokens", "add", "--client", "host-7", "--scope", "write")
        home.serve("--listen-client-ca", str(home.conf / "ca.pem"))
        client = home.remote(certificate="host-7")
        assert client.acquire("x", wait_ms=10_000)["state"] == "lease"
        assert client.call("POST", "/v1/prune", {}).status == 403
        client.close()
        assert home.remote(certificate="host-8").call("GET", "/v1/hello").status == 401, "known, but not let in"
        for certificate in ("", "stranger"):
            with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
                home.remote(certificate=certificate).call("GET", "/v1/hello")
        # A new certificate is used from SIGHUP on.
        os.replace(home.conf / "host-8.pem", home.conf / "server.pem")
        os.replace(home.conf / "host-8.key", home.conf / "server.key")
        os.kill(home.pids()[0], signal.SIGHUP)

        def changed() -> bool:
            try:
                home.remote(certificate="host-7").call("GET", "/v1/hello")
            except ssl.SSLError:
                return True
            return False

        assert eventually(changed), "whose name is not this host's"
    finally:
        home.clean()


def test_plain_text_stays_on_this_host(home: Home) -> None:
    home.start("--listen", "0.0.0.0:0", "--listen-plain")
    client = home.client()
    listener = client.get("/v1/stats")["listener"]
    assert listener["address"] is None and "no loopback address" in listener["problem"]
    client.close()


def test_plain_text_on_loopback_needs_a_token_as_well(home: Home) -> None:
    home.start("--listen", "127.0.0.1:0", "--listen-plain", "--listen-tokens", str(home.dir / "none"))
    client = home.client()
    host, port = client.get("/v1/stats")["listener"]["address"].rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    connection.request("GET", "/v1/hello")
    assert connection.getresponse().status == 401
    connection.close()
    client.close()
