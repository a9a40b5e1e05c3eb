"""export and import: the round trip, damage, interruption."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import DyingProxy, Home, validate
from conftest import Filled


@pytest.fixture
def other() -> Iterator[Home]:
    directory = Path(tempfile.mkdtemp(prefix="nc-cli-"))
    home = Home(directory)
    yield home
    home.kill_daemons()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def bundle(shared: Filled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "all.ncb"
    shared.home.ok("export", str(path))
    return path


def contents(home: Home) -> dict[str, object]:
    found: dict[str, object] = {}
    for entry in home.json("ls", "ls")["entries"]:
        if not entry["failed"]:
            shown = home.json("show", "show", entry["key"])
            found[entry["key"]] = (shown["manifest"], shown["label"], shown["namespace"], shown["build_ms"])
    return found


def test_round_trip(shared: Filled, bundle: Path, other: Home) -> None:
    document = other.json("import", "import", str(bundle))
    assert document["entries"] == document["imported"] == 3 and document["present"] == 0
    assert contents(other) == contents(shared.home)
    assert other.json("verify", "verify")["bad"] == []
    again = other.json("import", "import", str(bundle))
    assert again["imported"] == 0 and again["present"] == 3 and again["blobs"] == 0
    assert "3 were there already" in other.ok("import", str(bundle)).out
    assert other.ok("import", str(bundle), "--format", "tab").rows()[0]["present"] == "3"


def test_chosen_entries(shared: Filled, other: Home, tmp_path: Path) -> None:
    path = tmp_path / "some"
    assert shared.home.json("export", "export", str(path), shared.llama[:8], shared.llama)["entries"] == 1
    other.ok("import", str(path))
    assert set(contents(other)) == {shared.llama}
    assert shared.home.json("export", "export", str(tmp_path / "b"), "--namespace", "team-a")["entries"] == 1
    assert (
        shared.home.ok("export", str(tmp_path / "c"), "--model", "bert", "--format", "tab").rows()[0]["entries"] == "1"
    )
    shared.home.fails(1, "export", str(tmp_path / "d"), "--model", "nothing")
    shared.home.fails(2, "export", str(tmp_path / "d"), shared.failed)
    assert not (tmp_path / "d").exists()


def test_an_existing_file_is_kept_unless_forced(shared: Filled, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("precious")
    shared.home.fails(1, "export", str(path))
    assert path.read_text() == "precious"
    shared.home.ok("export", str(path), "--force")
    assert path.stat().st_size > 100


def test_a_truncated_file_gives_what_was_whole(bundle: Path, other: Home, tmp_path: Path) -> None:
    data = bundle.read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(data[:-10])  # in the trailer
    ran = other.fails(1, "import", str(cut))
    assert "3 entries were imported" in ran.err
    cut.write_bytes(data[: len(data) // 2])
    ran = other.fails(1, "import", str(cut))
    document = other.run("import", str(cut), "--format", "json")
    assert validate(document.json, "error")["error"]["code"] == "corrupt"
    assert other.json("verify", "verify")["bad"] == []
    assert other.json("import", "import", str(bundle))["present"] == 3


@pytest.mark.parametrize("where", [0.0005, 0.3, 0.7, 0.999])
def test_a_flipped_bit_is_found(bundle: Path, other: Home, tmp_path: Path, where: float) -> None:
    data = bytearray(bundle.read_bytes())
    data[int(len(data) * where)] ^= 4
    bad = tmp_path / "bad"
    bad.write_bytes(data)
    ran = other.fails(1, "import", str(bad))
    assert "entries were imported" in ran.err or "byte" in ran.err
    assert other.json("verify", "verify")["bad"] == []
    good = contents(other)
    other.ok("import", str(bundle))
    everything = contents(other)
    assert len(everything) == 3
    assert all(everything[key] == value for key, value in good.items())


def test_what_is_no_export_file(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"hello")
    home.fails(1, "import", str(path))
    path.write_bytes(b"")
    home.fails(1, "import", str(path))
    home.fails(1, "import", str(tmp_path / "absent"))
    assert home.daemons() == []  # refused before anything is started


def test_an_interrupted_export_goes_on(home: Home, other: Home, tmp_path: Path) -> None:
    """The daemon goes away in the middle; the same command then finishes the file."""
    home.ok("daemon", "start")
    daemon = home.connect()
    for i in range(8):
        daemon.store(f"n{i}", {"kernel": bytes([i]) * 1_000_000})
    daemon.close()
    path = tmp_path / "big"
    proxy = DyingProxy(home.socket, home.dir / "run" / "proxy", after_bytes=5_500_000)
    ran = home.fails(3, "export", str(path), "--socket", str(proxy.path))
    proxy.close()
    assert "goes on from" in ran.err and "the daemon" in ran.err
    assert not path.exists() and Path(f"{path}.partial").exists()
    document = home.json("export", "export", str(path))
    assert document["entries"] == 8 and document["resumed"]
    assert not Path(f"{path}.partial").exists()
    assert other.json("import", "import", str(path))["imported"] == 8


def test_an_interrupted_import_goes_on(bundle: Path, other: Home) -> None:
    """One that is killed leaves whole entries only; the next run takes the rest."""
    running = other.popen("import", str(bundle))
    running.kill()
    running.wait()
    other.ok("daemon", "start")
    assert other.json("verify", "verify")["bad"] == []
    document = other.json("import", "import", str(bundle))
    assert document["imported"] + document["present"] == 3
    assert len(contents(other)) == 3
