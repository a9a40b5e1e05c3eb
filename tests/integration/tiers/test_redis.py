"""The Redis engine against a real server: the contract, passwords, TLS, limits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))

from daemon_support import Home, eventually
from tier_servers import certificate, contract, redis


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with redis() as address:
        yield address


def test_contract(server: str) -> None:
    contract(f"redis://{server}", "all")
    contract(f"redis://{server}/3?prefix=team*[a]/", "all", "ListsPageByPage")


def test_passwords() -> None:
    with redis("--requirepass", "p@ss/word") as address:
        contract(f"redis://:p%40ss%2Fword@{address}", "all", "DoesWhatAnEngineDoes")
        contract(f"redis://default:p%40ss%2Fword@{address}", "user", "DoesWhatAnEngineDoes")
        contract(f"redis://{address}", "x", "FailsAsExpected", "denied")
        said = contract(f"redis://:hunter2@{address}", "x", "FailsAsExpected", "denied")
        assert "WRONGPASS" in said and "hunter2" not in said
        told_by_a_daemon(address)


def told_by_a_daemon(address: str) -> None:
    """Before anybody has asked for anything."""
    home = Home()
    try:
        home.start("--tiers", f"redis://:hunter2@{address}")
        client = home.client()
        assert eventually(lambda: client.get("/v1/tiers")["tiers"][0]["reading"]["state"] != "closed")
        (tier,) = client.get("/v1/tiers")["tiers"]
        assert "WRONGPASS" in tier["reading"]["problem"] and "user and password" in tier["reading"]["problem"]
        assert tier["address"].startswith("redis://") and "hunter2" not in str(tier)
        client.close()
        log = home.log_text()
        assert "cannot be read" in log and "denied" in log and "hunter2" not in log
    finally:
        home.clean()


def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    options = ["--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file", str(cert)]
    with redis("--tls-auth-clients", "no", *options, tls=True) as address:
        contract(f"rediss://{address}?ca_file={cert}", "all", "DoesWhatAnEngineDoes")
        said = contract(f"rediss://{address}", "x", "FailsAsExpected", "io")
        assert "not believed" in said
        other = address.replace("127.0.0.1", "localhost")
        contract(f"rediss://{other}?ca_file={cert}", "x", "FailsAsExpected", "io")
        contract(f"redis://{address}?timeout=1s", "x", "FailsAsExpected", "unavailable")
    with redis() as plain:
        contract(f"rediss://{plain}?ca_file={cert}&timeout=200ms", "x", "FailsAsExpected", "timeout")


def test_client_certificates(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    options = ["--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file", str(cert)]
    with redis(*options, tls=True) as address:  # wants them: its default
        place = f"rediss://{address}?ca_file={cert}"
        contract(f"{place}&cert_file={cert}&key_file={key}", "all", "DoesWhatAnEngineDoes")
        contract(place, "x", "IsRefused")
        said = contract(f"{place}&cert_file={key}&key_file={key}", "x", "FailsAsExpected", "io")
        assert str(key) in said and "cannot be used" in said


def test_a_server_that_is_full() -> None:
    with redis("--maxmemory", "100kb") as address:
        contract(f"redis://{address}", "x", "IsFull")
