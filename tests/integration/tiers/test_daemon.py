"""Another host's neuroncached as a tier: entries and blobs over its TCP listener."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))

from daemon_support import eventually, key_of, manifest
from remote_support import RemoteHome
from tier_servers import contract

BLOB = "bytes of an artifact " * 100


@pytest.fixture(scope="module")
def far() -> Iterator[RemoteHome]:
    home = RemoteHome()
    home.cli("keys", "init")
    home.serve("--trust", "any")
    yield home
    home.clean()


def url_of(home: RemoteHome) -> str:
    place = f"https://{home.address[0]}:{home.address[1]}"
    return f"{place}?layout=neuroncached&compression=none&token_env=TOKEN&ca_file={home.conf / 'ca.pem'}"


def test_an_entry_goes_there_and_back(far: RemoteHome) -> None:
    token = far.token("--scope", "write")
    assert eventually(lambda: far.remote(token).call("GET", "/v1/hello").status == 200)
    entry = {"TOKEN": token, "NC_TIER_KEY": key_of("tier"), "NC_TIER_BLOB": BLOB}
    entry["NC_TIER_MANIFEST"] = json.dumps(manifest("tier", {"out": BLOB.encode()}))
    contract(url_of(far), "all", "KeepsAnEntry", **entry)
    local = far.client()
    assert local.acquire("tier", intent="lookup")["state"] == "hit"
    local.close()


def test_a_stranger_gets_nothing(far: RemoteHome) -> None:
    said = contract(url_of(far), "x", "RefusesEntries", TOKEN="nct_" + "0" * 64)
    assert "nct_" not in said
