"""What broken, hostile and impatient clients send."""

from __future__ import annotations

import os
import random
import socket
import threading

import pytest
from daemon_support import Home, Raw, digest, eventually, key_of

HELLO = b"GET /v1/hello HTTP/1.1\r\n\r\n"


def still_well(home: Home) -> None:
    client = home.client()
    assert client.get("/v1/hello")["version"]
    client.close()


def test_garbage_is_refused_and_the_connection_closed(shared: Home) -> None:
    for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"hello daemon\r\n\r\n", b"\0" * 100):
        raw = shared.raw()
        raw.send(data + b"\r\n\r\n")
        answer = raw.answer()
        assert (answer.status, answer.code) == (400, "invalid")
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.ended()
    still_well(shared)


def test_random_bytes_do_no_harm(shared: Home) -> None:
    dice = random.Random(7)
    for _ in range(100):
        raw = shared.raw()
        raw.send(dice.randbytes(dice.randrange(1, 3000)))
        raw.close()
    still_well(shared)


def test_a_huge_header_is_refused(shared: Home) -> None:
    raw = shared.raw()
    raw.send(b"GET /v1/hello HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n")
    answer = raw.answer()
    assert (answer.status, answer.code) == (431, "too_large")


@pytest.mark.parametrize("method, target", [("PUT", f"/v1/blobs/{'0' * 64}"), ("POST", "/v1/prune")])
def test_a_body_needs_a_length(shared: Home, method: str, target: str) -> None:
    raw = shared.raw()
    raw.send(f"{method} {target} HTTP/1.1\r\n\r\n".encode())
    answer = raw.answer()
    assert (answer.status, answer.code) == (411, "length_required")
    raw.send(HELLO)
    assert raw.answer().status == 200
    chunked = shared.raw()
    chunked.send(f"{method} {target} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".encode())
    answer = chunked.answer()
    assert (answer.status, answer.code) == (411, "length_required")


def test_after_an_encoding_that_is_not_known_nothing_is_read(shared: Home) -> None:
    for method, target in (("GET", "/v1/hello"), ("POST", "/v1/prune")):
        raw = shared.raw()
        raw.send(f"{method} {target} HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n".encode() + HELLO)
        answer = raw.answer()
        assert (answer.status, answer.code) == (411, "length_required")
        assert answer.headers["Connection"] == "close"
        assert raw.ended() and raw.left == b""


def test_a_control_body_has_a_limit(shared: Home) -> None:
    raw = shared.raw()
    raw.send(f"POST /v1/actions/{'0' * 64}/acquire HTTP/1.1\r\nContent-Length: {8 << 20}\r\n\r\n".encode())
    answer = raw.answer()
    assert (answer.status, answer.code) == (413, "too_large")
    # The body that was announced is read and dropped, then the connection is good again.
    raw.send(b"x" * (8 << 20) + HELLO)
    assert raw.answer().status == 200


def test_errors_keep_the_connection(shared: Home) -> None:
    client = shared.client()
    assert client.call("GET", "/v1/nothing").code == "not_found"
    assert client.call("DELETE", "/v1/hello").status == 405
    assert client.call("POST", "/v1/nothing", b"x" * 1000).status == 404
    assert client.call("HEAD", "/v1/nothing").status == 404
    assert client.call("GET", "/v1/actions/xyz").status == 400
    assert client.call("POST", f"/v1/actions/{key_of('a')}/acquire", b"{").status == 400
    assert client.call("GET", "/v1/hello", X_Neuroncache_Protocol="99").code == "unsupported_protocol"
    assert client.call("GET", "/v1/hello", X_Neuroncache_Protocol="1").status == 200


def test_a_slow_head_is_dropped(shared: Home) -> None:
    raw = shared.raw()
    raw.send(b"GET /v1/hel")
    answer = raw.answer()
    assert (answer.status, answer.code) == (408, "timeout")
    assert raw.ended()


def test_a_head_that_drips_is_dropped(shared: Home) -> None:
    raw = shared.raw()
    dripping = threading.Event()

    def drip() -> None:
        while not dripping.wait(0.1):
            raw.send(b"X: 1\r\n")

    raw.send(b"GET /v1/hello HTTP/1.1\r\n")
    thread = threading.Thread(target=drip)
    thread.start()
    assert raw.answer().status == 408
    dripping.set()
    thread.join()


def test_a_body_that_stops_is_dropped(shared: Home) -> None:
    for target in (f"PUT /v1/blobs/{'0' * 64}", f"POST /v1/actions/{'0' * 64}/acquire"):
        raw = shared.raw()
        raw.send(f"{target} HTTP/1.1\r\nContent-Length: 100000\r\n\r\nhalf".encode())
        assert raw.answer().status == 408
        assert raw.ended()


def test_an_idle_connection_is_kept(shared: Home) -> None:
    raw = shared.raw()
    slow = shared.raw()
    slow.send(b"G")
    assert slow.answer().status == 408  # so much time has passed
    raw.send(HELLO)
    assert raw.answer().status == 200


def test_a_client_that_does_not_read_is_dropped(shared: Home) -> None:
    client = shared.client()
    data = os.urandom(8 << 20)
    assert client.put_blob(data, "?compress=never").status in (200, 201)
    raw = shared.raw()
    raw.send(f"GET /v1/blobs/{digest(data)} HTTP/1.1\r\n\r\n".encode())
    assert eventually(lambda: client.get("/v1/stats")["health"]["connections"] == 1)
    raw.close()


def test_a_slow_reader_gets_everything(shared: Home) -> None:
    client = shared.client()
    data = os.urandom(3 << 20)
    assert client.put_blob(data, "?compress=never").status in (200, 201)
    raw = shared.raw()
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.send(f"GET /v1/blobs/{digest(data)} HTTP/1.1\r\n\r\n".encode() + HELLO)
    assert raw.answer().body == data
    assert raw.answer().status == 200


def test_pipelined_requests_are_answered_in_order(shared: Home) -> None:
    raw = shared.raw()
    body = b'{"namespace": "pipelined", "reason": "test"}'
    post = b"POST /v1/bypass HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    sender = threading.Thread(target=raw.send, args=((HELLO + b"GET /v1/nothing HTTP/1.1\r\n\r\n" + post) * 300,))
    sender.start()
    for _ in range(300):
        assert raw.answer().status == 200
        assert raw.answer().status == 404
        assert raw.answer().json == {"counted": 1}
    sender.join()
    client = shared.client()
    assert client.get("/v1/stats?namespace=pipelined")["counters"]["bypasses"] == 300


def test_a_half_closed_client_gets_its_answer(shared: Home) -> None:
    raw = shared.raw()
    raw.send(HELLO)
    raw.socket.shutdown(socket.SHUT_WR)
    assert raw.answer().status == 200
    assert raw.ended()


def test_a_half_closed_client_may_wait_for_a_build(home: Home) -> None:
    home.start()
    builder = home.client()
    lease = builder.acquire("a")["lease"]
    raw = home.raw()
    body = b'{"intent": "build", "wait_ms": 20000}'
    raw.send(b"POST /v1/actions/%s/acquire HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (key_of("a").encode(), len(body)))
    raw.send(body)
    raw.socket.shutdown(socket.SHUT_WR)
    assert eventually(lambda: builder.get("/v1/stats")["health"]["tickets"] == 1)
    assert builder.commit("a", lease, {"out": b"x"}).status == 201
    assert raw.answer().json["state"] == "hit"


def test_connection_close_is_honoured(shared: Home) -> None:
    raw = shared.raw()
    raw.send(b"GET /v1/hello HTTP/1.1\r\nConnection: close\r\n\r\n")
    answer = raw.answer()
    assert answer.headers["Connection"] == "close"
    assert raw.ended()


def test_a_client_that_asks_first_may_send_a_large_body(shared: Home) -> None:
    data = os.urandom(200_000)
    raw = shared.raw()
    head = f"PUT /v1/blobs/{digest(data)} HTTP/1.1\r\nContent-Length: {len(data)}\r\nExpect: 100-continue\r\n\r\n"
    raw.send(head.encode())
    assert raw.answer().status == 100
    raw.send(data)
    assert raw.answer().status == 201


def test_a_hundred_connections_at_once(shared: Home) -> None:
    open_now: list[Raw] = [shared.raw() for _ in range(100)]
    for raw in open_now:
        raw.send(HELLO)
    for raw in open_now:
        assert raw.answer().status == 200
    client = shared.client()
    assert client.get("/v1/stats")["health"]["connections"] >= 101
    for raw in open_now:
        raw.close()
    assert eventually(lambda: client.get("/v1/stats")["health"]["connections"] == 1)


def test_connections_over_the_limit_are_told_so(home: Home) -> None:
    home.start("--max-connections", "8")
    kept = [home.raw() for _ in range(8)]
    for raw in kept:
        raw.send(HELLO)
        assert raw.answer().status == 200
    over = home.raw()
    over.send(HELLO)
    answer = over.answer()
    assert (answer.status, answer.code) == (503, "busy")
    assert over.ended()
    kept.pop().close()

    def served() -> bool:
        raw = home.raw()
        raw.send(HELLO)
        return raw.answer().status == 200

    assert eventually(served)


def test_another_user_is_refused(home: Home) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    home.start()
    for path in (home.dir, home.dir / "run"):
        path.chmod(0o755)
    os.chmod(home.socket, 0o666)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        raw = home.raw()
        raw.send(HELLO)
        os.write(write, f"{(answer := raw.answer()).status} {answer.code}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"403 denied"
    still_well(home)
