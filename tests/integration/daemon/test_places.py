"""Where a daemon may live, and who may come in over its socket."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys

import pytest
from daemon_support import BIN, Home, key_of, parts_of

STRANGER, GROUP, OTHER_GROUP = 54321, 54322, 54323

# Run as somebody else: what a look-up, a path, an upload and a shutdown are answered.
ASK = """
import hashlib, http.client, json, os, socket, sys
path, uid, gid, more, key, parts = sys.argv[1:]
os.setgroups([int(g) for g in more.split(",") if g]); os.setgid(int(gid)); os.setuid(int(uid))
class C(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX); self.sock.settimeout(30); self.sock.connect(path)
def call(method, target, body=None):
    try:
        c = C("x"); c.request(method, target, body); r = c.getresponse()
        return [r.status, json.loads(r.read() or "null")]
    except OSError as e:
        return [0, str(e)]
digest = hashlib.sha256(b"theirs").hexdigest()
ask = json.dumps({"intent": "build", "parts": json.loads(parts)})
print(json.dumps([
    call("POST", f"/v1/actions/{key}/acquire", ask), call("PUT", f"/v1/blobs/{digest}", b"theirs"),
    call("GET", "/v1/hello"), call("POST", "/v1/shutdown", "{}"),
]))
"""


def ask_as(home: Home, uid: int, gid: int, more: str = "") -> list[list[object]]:
    words = [home.socket, str(uid), str(gid), more, key_of("x"), json.dumps(parts_of("x"))]
    ran = subprocess.run([sys.executable, "-I", "-c", ASK, *words], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    answers: list[list[object]] = json.loads(ran.stdout)
    return answers


def refused(home: Home, *flags: str) -> str:
    process = home.start(*flags, wait=False)
    assert process.wait(30) != 0
    return home.log_text()


def test_a_store_below_a_directory_open_to_all_is_refused(home: Home) -> None:
    open_dir = home.dir / "open"
    open_dir.mkdir()
    open_dir.chmod(0o777)
    home.store = open_dir / "store"
    log = refused(home)
    assert f"{open_dir} can be written by everybody" in log and "chmod o-w" in log
    link = home.dir / "link"
    link.symlink_to(open_dir)
    home.store = link / "store"
    assert f"{open_dir} can be written by everybody" in refused(home)
    open_dir.chmod(0o755)
    home.start()


def test_a_socket_below_a_directory_open_to_all_is_refused(home: Home) -> None:
    open_dir = home.dir / "open"
    open_dir.mkdir()
    open_dir.chmod(0o777)
    home.socket = str(open_dir / "run" / "d.sock")
    assert f"{open_dir} can be written by everybody" in refused(home)


def test_a_link_in_the_sockets_place_is_not_followed(home: Home) -> None:
    run = home.dir / "run"
    run.mkdir(mode=0o700)
    target = home.dir / "target"
    target.write_text("precious")
    os.symlink(target, home.socket)
    assert "is no socket" in refused(home)
    assert target.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_the_sockets_group_may_use_it_and_not_administer(home: Home) -> None:
    home.dir.chmod(0o755)
    home.start("--socket-group", str(GROUP))
    info = os.stat(home.socket)
    assert (stat.S_IMODE(info.st_mode), info.st_gid) == (0o660, GROUP)
    assert stat.S_IMODE(os.stat(home.dir / "run").st_mode) == 0o710
    own = home.client()
    own.build("x", {"out": os.urandom(100_000)})
    for gid, more in ((GROUP, ""), (OTHER_GROUP, str(GROUP))):
        acquired, uploaded, hello, shutdown = ask_as(home, STRANGER, gid, more)
        assert acquired[0] == 200 and acquired[1]["blobs"]["out"]["path"] is None  # type: ignore[index]
        assert uploaded[0] in (200, 201)
        assert hello[1]["store"]["path"] == ""  # type: ignore[index]
        assert shutdown[0] == 403
    assert [answer[0] for answer in ask_as(home, STRANGER, OTHER_GROUP)] == [0] * 4, "the system lets nobody else in"
    os.chmod(home.socket, 0o666)
    os.chmod(home.dir / "run", 0o755)
    assert [answer[0] for answer in ask_as(home, STRANGER, OTHER_GROUP)] == [403] * 4, "nor does the daemon"
    assert own.acquire("x")["blobs"]["out"]["path"]
    own.close()


def test_a_group_that_does_not_exist_is_told(home: Home) -> None:
    assert "there is no group 'nobody-has-this'" in refused(home, "--socket-group", "nobody-has-this")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_users_daemon_in_ones_own_place_is_not_asked(home: Home) -> None:
    home.dir.chmod(0o755)
    program = home.dir / "neuroncache"
    shutil.copy(BIN / "neuroncache", program)
    place = home.dir / "xdg" / "neuroncache" / "daemon.sock"
    place.parent.mkdir(parents=True)
    os.chown(place.parent, STRANGER, GROUP)
    listen = (
        "import os, socket, sys, time; os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[2])); "
    )
    listen += "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); os.chmod(sys.argv[1], 0o666); "
    listen += "print(flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-I", "-c", listen, str(place), str(STRANGER), str(GROUP)], stdout=subprocess.PIPE, cwd="/"
    ) as stranger:  # fmt: skip
        assert stranger.stdout and stranger.stdout.readline()
        env = {"HOME": str(home.dir), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(home.dir / "xdg")}
        ran = subprocess.run(
            [str(program), "ls"], env=env, user=STRANGER + 7, group=GROUP, extra_groups=[], capture_output=True, text=True,
            timeout=60, cwd="/",
        )  # fmt: skip
        stranger.kill()
    assert ran.returncode != 0 and f"user {STRANGER} serves {place}" in ran.stderr, ran.stderr
