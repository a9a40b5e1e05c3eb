"""Servers that tiers live on, each on a free port of this host with files of its own, gone with the test: moto's S3, a
strict S3 of ours, Redis, nginx.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("NC_BIN_DIR", ROOT / "build" / "bin"))
CONTRACT = BIN.parent / "tests" / "tier_contract"
MOTO = [sys.executable, str(ROOT / "tests" / "tools" / "moto_s3.py")]
SERVERS = ROOT / "build" / "servers"  # where ./x unpacks Debian's redis-tools and nginx
PATIENCE_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def program(*names: str) -> Path:
    """The first of these that is unpacked by ./x or installed."""
    for name in names:
        for folder in ("usr/bin", "usr/sbin"):
            if (SERVERS / folder / name).exists():
                return SERVERS / folder / name
        if found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
            return Path(found)
    raise AssertionError(f"none of {', '.join(names)} is there; `./x build` unpacks them into {SERVERS}")


def reachable(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if reachable("127.0.0.1", port):
            return
        assert process.poll() is None, f"the server ended: {log.read_text()}"
        time.sleep(0.02)
    raise AssertionError(f"the server does not answer: {log.read_text()}")


@contextlib.contextmanager
def running(command: list[str], port: int, executable: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, executable=executable, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        try:
            wait_for(port, process, log)
            yield process
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """An S3 service with one bucket, "tier-bucket"; gives its address. It checks no signatures."""
    port = free_port()
    with running([*MOTO, "-H", "127.0.0.1", "-p", str(port)], port):
        url = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(urllib.request.Request(f"{url}/tier-bucket", method="PUT")) as answer:
            assert answer.status == 200
        yield url


@contextlib.contextmanager
def strict_s3(*options: str) -> Iterator[str]:
    """The S3 service of tests/tools/strict_s3.py; gives its address."""
    script = ROOT / "tests" / "tools" / "strict_s3.py"
    process = subprocess.Popen([sys.executable, str(script), *options], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def redis(*options: str, tls: bool = False) -> Iterator[str]:
    """A Redis server without persistence; gives host:port."""
    port = free_port()
    # Debian's redis-tools hold the server under another name; it goes by the name that it is started as.
    command = ["redis-server", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    command += ["--tls-port" if tls else "--port", str(port), *(["--port", "0"] if tls else []), *options]
    with running(command, port, program("redis-check-rdb", "redis-server")):
        yield f"127.0.0.1:{port}"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=neuroncache-test"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{ }}
http {{
  access_log {folder}/access; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  client_max_body_size 64m;
  server {{
    listen 127.0.0.1:{port}; listen 127.0.0.1:{tls_port} ssl; root {folder}/files;
    ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem; {clients}
    location / {{ dav_methods PUT DELETE; create_full_put_path on; {inside} }}
    location /read-only/ {{ limit_except GET {{ deny all; }} }}
    location /elsewhere/ {{ return 302 http://127.0.0.1:{port}/; }}
    location /sick/ {{ return 503; }}
  }}
}}
"""


class Nginx:
    """Plain files by WebDAV; `inside` are directives of the location."""

    def __init__(self, folder: Path, inside: str, verify_clients: bool) -> None:
        self.folder = folder
        self.port, self.tls_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.tls_url = f"https://127.0.0.1:{self.tls_port}"
        self.cert, self.key = certificate(folder)
        (folder / "files").mkdir()
        clients = f"ssl_verify_client optional; ssl_client_certificate {self.cert};" if verify_clients else ""
        ports = {"port": self.port, "tls_port": self.tls_port}
        text = NGINX.format(folder=folder, inside=inside, clients=clients, **ports)
        (folder / "nginx.conf").write_text(text)


@contextlib.contextmanager
def nginx(inside: str = "", verify_clients: bool = False) -> Iterator[Nginx]:
    with tempfile.TemporaryDirectory() as folder:
        made = Nginx(Path(folder), inside, verify_clients)
        command = [str(program("nginx")), "-p", folder, "-c", f"{folder}/nginx.conf", "-e", f"{folder}/errors"]
        with running(command, made.port):
            yield made


def contract(url: str, root: str, tests: str = "*", expect: str = "", **variables: str) -> str:
    """Runs the contract against a tier; gives what it printed."""
    env = {"PATH": os.environ["PATH"], "NC_TIER_URL": url, "NC_TIER_ROOT": root, "NC_TIER_EXPECT": expect} | variables
    done = subprocess.run(
        [CONTRACT, "--gtest_brief=1", f"--gtest_filter=TierContract.{tests}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{url}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
