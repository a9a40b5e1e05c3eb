"""import --from and materialize: the caches of Neuron's own stacks, in and out again."""

from __future__ import annotations

import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cli_support import BIN, Home, action_key
from tier_servers import free_port, moto

KEY = "ab12" + "0123456789abcdef" + "0123456789ab"
COMPILER = "neuronxcc-2.20.9961.0+0acef03a"
MODULE = "MODULE_15217443871946382034+d7cde3b5"
NAMED = "MODULE_" + "0123456789abcdef0123" + "+39f12043"


def put(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def neff_cache(root: Path) -> Path:
    put(root / "ab" / "12" / f"{KEY}.neff", b"NEFF one" * 20_000)
    put(root / "cd" / "34" / f"cd34{'0' * 28}.neff", b"NEFF two")
    put(root / "cd" / "34" / f"cd34{'1' * 28}.neff")  # empty
    put(root / "cd" / "34" / ".tmp.x7Gh2K", b"half")
    put(root / "cd" / "34" / f"ee34{'1' * 28}.neff", b"elsewhere")
    put(root / "cd" / "34" / "notes.neff", b"?")
    put(root / "locks" / f"{KEY}.lock")
    return root


def module(root: Path, name: str, **files: bytes) -> Path:
    directory = root / COMPILER / name
    directory.mkdir(parents=True)
    for file, content in files.items():
        put(
            directory / {"hlo": "model.hlo_module.pb", "flags": "compile_flags.json"}.get(file, f"model.{file}"),
            content,
        )
    return directory


def neuron_cache(root: Path) -> Path:
    module(root, MODULE, hlo=b"HLO" * 100, flags=b'["--model-type=transformer"]', neff=b"NEFF" * 30_000, done=b"")
    module(root, NAMED, hlo=b"HLO2", flags=b"[]", neff=b"NEFF small", done=b"")
    module(root, "MODULE_1+d41d8cd9", hlo=b"HLO", log=b"error")
    module(root, "MODULE_2+d41d8cd9", hlo=b"HLO", neff=b"N", done=b"")
    put(root / COMPILER / "MODULE_2+d41d8cd9" / "model.hlo_module.pb.lock")
    module(root, "MODULE_3+d41d8cd9", hlo=b"HLO", neff=b"", done=b"")
    module(root, "MODULE_4+d41d8cd9", hlo=b"HLO", neff=b"NE")
    module(root, "MODULE_5+d41d8cd9", hlo=b"HLO")
    module(root, "MODULE_x+y", neff=b"N", done=b"")
    put(root / COMPILER / "0_REGISTRY" / "a.json", b"{}")
    return root


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_neff_cache_in_and_out(home: Home, tmp_path: Path) -> None:
    cache = neff_cache(tmp_path / "cache")
    document = home.json("import-from", "import", "--from", "neff-cache", str(cache))
    assert document["entries"] == document["imported"] == 2 and document["present"] == 0
    reasons = {Path(skip["path"]).name: skip["reason"] for skip in document["skipped"]}
    assert set(reasons) == {f"cd34{'1' * 28}.neff", ".tmp.x7Gh2K", f"ee34{'1' * 28}.neff", "notes.neff"}
    assert reasons[f"cd34{'1' * 28}.neff"] == "is empty"
    key = action_key([("door", "neff-cache 1"), ("key", KEY)])
    shown = home.json("show", "show", key)
    assert shown["manifest"]["meta"]["place"] == f"ab/12/{KEY}.neff"
    assert "compiler" in shown["manifest"]["meta"]["not_known"]
    assert home.json("import-from", "import", "--from", "neff-cache", str(cache))["present"] == 2

    laid = tmp_path / "laid"
    document = home.json("materialize", "materialize", "--layout", "neff-cache", str(laid))
    assert document["written"] == 2 and document["skipped"] == []
    assert tree(laid) == {name: data for name, data in tree(cache).items() if name in tree(laid)}
    assert set(tree(laid)) == {f"ab/12/{KEY}.neff", f"cd/34/cd34{'0' * 28}.neff"}


def test_neuron_cache_in_and_out(home: Home, tmp_path: Path) -> None:
    cache = neuron_cache(tmp_path / "cache")
    document = home.json("import-from", "import", "--from", "neuron-cache", str(cache))
    assert document["entries"] == document["imported"] == 2
    reasons = {Path(skip["path"]).name: skip["reason"] for skip in document["skipped"]}
    assert "failed" in reasons.pop("MODULE_1+d41d8cd9")
    assert "locked" in reasons.pop("MODULE_2+d41d8cd9")
    assert "empty" in reasons.pop("MODULE_3+d41d8cd9")
    assert "not finished" in reasons.pop("MODULE_4+d41d8cd9")
    assert "not compiled" in reasons.pop("MODULE_5+d41d8cd9")
    assert "named" in reasons.pop("MODULE_x+y")
    assert not reasons
    listed = home.json("ls", "ls", "--compiler", "neuronx-cc 2.20.9961.0+0acef03a")["entries"]
    assert {entry["label"] for entry in listed} == {MODULE, NAMED} and {entry["kind"] for entry in listed} == {"neff"}

    laid = tmp_path / "laid"
    assert home.json("materialize", "materialize", "--layout", "neuron-cache", str(laid))["written"] == 2
    sound = {name: data for name, data in tree(cache).items() if f"/{MODULE}/" in name or f"/{NAMED}/" in name}
    assert tree(laid) == sound and len(sound) == 8


def test_what_is_there_stays(home: Home, tmp_path: Path) -> None:
    cache = neuron_cache(tmp_path / "cache")
    home.ok("import", "--from", "neuron-cache", str(cache))
    laid = tmp_path / "laid"
    put(laid / COMPILER / MODULE / "model.neff", b"mine")
    put(laid / COMPILER / MODULE / "model.done")
    put(laid / COMPILER / NAMED / "model.hlo_module.pb.lock")
    ran = home.run("materialize", "--layout", "neuron-cache", str(laid))
    assert ran.status == 1 and "stay" in ran.out and "locked" in ran.out
    assert (laid / COMPILER / MODULE / "model.neff").read_bytes() == b"mine"
    assert not (laid / COMPILER / NAMED / "model.neff").exists()
    (laid / COMPILER / NAMED / "model.hlo_module.pb.lock").unlink()
    put(laid / COMPILER / NAMED / "model.log", b"an earlier failure")
    document = home.json("materialize", "materialize", "--layout", "neuron-cache", str(laid))
    assert document["written"] == 1
    assert (laid / COMPILER / NAMED / "model.neff").read_bytes() == b"NEFF small"
    assert not (laid / COMPILER / NAMED / "model.log").exists()
    assert home.json("materialize", "materialize", "--layout", "neuron-cache", str(laid))["present"] == 1


def test_what_was_built_for_libneuronxla_has_a_place(home: Home, tmp_path: Path) -> None:
    home.ok("daemon", "start")
    daemon = home.connect()
    built: dict[str, Any] = {"kind": "neff", "compiler": "neuronx-cc 2.20.9961.0+0acef03a"}
    daemon.store(f"model.{MODULE}.hlo_module.pb", {"neff": b"NEFF built"}, **built)
    daemon.store("model.MODULE_7+d41d8cd9.hlo.pb", {"neff": b"once"}, **built)
    for name, neff in [("a", b"one"), ("b", b"other"), ("c", b"same"), ("d", b"same")]:
        label = f"model.MODULE_{9 if name in 'ab' else 10}+d41d8cd9.hlo_module.pb"
        daemon.store(name, {"neff": neff}, label=label, **built)
    daemon.store("module.mlir", {"neff": b"no place"}, **built)
    daemon.store("model.MODULE_8+d41d8cd9.hlo.pb", {"neff": b"x"}, kind="neff", compiler="neuronx-cc ../../x")
    daemon.close()
    laid = tmp_path / "laid"
    document = home.json("materialize", "materialize", "--layout", "neuron-cache", str(laid))
    assert document["written"] == 3
    assert [Path(skip["path"]).name for skip in document["skipped"]] == ["MODULE_9+d41d8cd9"]
    assert tree(laid) == {
        f"{COMPILER}/MODULE_10+d41d8cd9/model.neff": b"same", f"{COMPILER}/MODULE_10+d41d8cd9/model.done": b"",
        f"{COMPILER}/{MODULE}/model.neff": b"NEFF built", f"{COMPILER}/{MODULE}/model.done": b"",
        f"{COMPILER}/MODULE_7+d41d8cd9/model.neff": b"once", f"{COMPILER}/MODULE_7+d41d8cd9/model.done": b"",
    }  # fmt: skip


def test_a_write_to_what_was_laid_out_does_not_reach_the_store(home: Home, tmp_path: Path) -> None:
    home.ok("import", "--from", "neff-cache", str(neff_cache(tmp_path / "cache")))
    laid = tmp_path / "laid"
    home.ok("materialize", "--layout", "neff-cache", str(laid))
    (laid / "ab" / "12" / f"{KEY}.neff").write_bytes(b"overwritten")
    assert home.json("verify", "verify")["bad"] == []
    shutil.rmtree(laid)
    home.ok("materialize", "--layout", "neff-cache", str(laid))
    assert (laid / "ab" / "12" / f"{KEY}.neff").read_bytes() == b"NEFF one" * 20_000


def test_a_neuron_cache_in_a_bucket(home: Home, tmp_path: Path) -> None:
    cache = neuron_cache(tmp_path / "cache")
    here = home.json("import-from", "import", "--from", "neuron-cache", str(cache))
    home.ok("prune", "--kind", "neff")
    home.env |= {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "TMPDIR": str(tmp_path)}
    with moto() as url:
        for path in cache.rglob("*"):
            if path.is_file():
                name = urllib.parse.quote(f"team/{path.relative_to(cache)}")
                request = urllib.request.Request(f"{url}/tier-bucket/{name}", path.read_bytes(), method="PUT")
                request.add_header("Content-Type", "application/octet-stream")
                urllib.request.urlopen(request).close()
        where = f"s3://tier-bucket/team?endpoint={url}"
        document = home.json("import-from", "import", "--from", "neuron-cache", where)
        assert home.run("import", "--from", "neuron-cache", f"s3://tier-bucket/nobody?endpoint={url}").status == 2
    assert document["directory"] == where
    assert (document["imported"], document["skipped"]) == (here["imported"], here["skipped"])
    assert document["imported"] > 0 and not list(tmp_path.glob("neuroncache-build-*"))


@pytest.mark.parametrize("layout", ["neff-cache", "neuron-cache"])
def test_what_cannot_be_imported(home: Home, tmp_path: Path, layout: str) -> None:
    (tmp_path / "empty").mkdir()
    put(tmp_path / "file", b"x")
    home.fails(2, "import", "--from", layout, str(tmp_path / "empty"))
    home.fails(1, "import", "--from", layout, str(tmp_path / "absent"))
    assert home.run("import", "--from", layout, str(tmp_path / "file")).status != 0
    assert "bucket" in home.run("import", "--from", layout, "s3://").err
    home.env |= {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
    ran = home.fails(3, "import", "--from", layout, f"s3://bucket/cache?endpoint=http://127.0.0.1:{free_port()}")
    assert "could not be copied" in ran.err and "secret" not in ran.err
    assert home.daemons() == []  # refused before anything is started
    home.fails(2, "import", "--from", "other", str(tmp_path))
    home.fails(2, "materialize", str(tmp_path / "out"))
    home.fails(1, "materialize", "--layout", layout, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def fake_compiler(directory: Path, version: str = COMPILER.removeprefix("neuronxcc-")) -> Path:
    program = put(
        directory / "neuronx-cc",
        f"""#!/bin/sh
[ "$1" = --version ] && echo "NeuronX Compiler version {version}" && exit 0
exit 99
""".encode(),
    )
    program.chmod(0o755)
    return program


def test_the_wrapper_finds_what_was_imported_with_its_compiler(home: Home, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    flags = b'["--model-type=transformer", "--target=trn2", "--auto-cast=none"]'
    hlo = b"an HLO module"
    module(cache, MODULE, hlo=hlo, flags=flags, neff=b"NEFF" * 30_000, done=b"")
    module(cache, NAMED, hlo=hlo, flags=b"no list", neff=b"NEFF 2", done=b"")
    compiler = fake_compiler(tmp_path / "real")
    document = home.json("import-from", "import", "--from", "neuron-cache", "--compiler", str(compiler), str(cache))
    assert document["imported"] == 2 and document["keyed"] == 1
    assert [Path(skip["path"]).name for skip in document["not_keyed"]] == [NAMED]

    source = put(tmp_path / "work" / f"model.{MODULE}.hlo_module.pb", hlo)
    output = tmp_path / "work" / "out.neff"
    command = ["compile", "--framework=XLA", str(source), "--output", str(output), "--auto-cast=none", "--verbose=35"]
    command += ["--model-type=transformer", "--target=trn2"]
    env = {**home.env, "PATH": f"{compiler.parent}:{home.env['PATH']}"}

    def wrapper(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN.parent / "libexec" / "neuronx-cc"), *command, *more],
            env=env, cwd=tmp_path / "work", capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    ran = wrapper()
    assert ran.returncode == 0 and "Compiler status PASS" in ran.stdout, ran
    assert output.read_bytes() == b"NEFF" * 30_000
    assert wrapper("-O1").returncode == 99  # another flag: that was never compiled

    # Another version did not build it.
    other = fake_compiler(tmp_path / "other", "2.21.1.0+12345678")
    document = home.json("import-from", "import", "--from", "neuron-cache", "--compiler", str(other), str(cache))
    assert document["keyed"] == 0 and len(document["not_keyed"]) == 2


def test_which_compiler_must_be_sound(home: Home, tmp_path: Path) -> None:
    cache = neuron_cache(tmp_path / "cache")
    ran = home.run("import", "--from", "neuron-cache", "--compiler", str(tmp_path / "absent"), str(cache))
    assert ran.status != 0 and "absent" in ran.err
    home.fails(
        2, "import", "--from", "neff-cache", "--compiler", str(fake_compiler(tmp_path / "real")),
        str(neff_cache(tmp_path / "neffs")),
    )  # fmt: skip
    assert home.daemons() == []
