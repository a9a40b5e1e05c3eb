"""A daemon that serves TCP as well: certificates, tokens, keys, and clients for it."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import socket
import ssl
import struct
import subprocess
from pathlib import Path
from typing import Any

from daemon_support import BIN, PATIENCE_S, Answer, Client, Home


def openssl(directory: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True, timeout=60)


def make_certificates(directory: Path) -> None:
    """An authority, a server for 127.0.0.1 and two clients; and a stranger's client of another authority."""
    for name in ("ca", "other-ca"):
        openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    (directory / "server.ext").write_text("subjectAltName=IP:127.0.0.1\n")
    (directory / "client.ext").write_text("extendedKeyUsage=clientAuth\n")
    for name, authority in (("server", "ca"), ("host-7", "ca"), ("host-8", "ca"), ("stranger", "other-ca")):
        common = "host-7" if name == "stranger" else name
        openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                f"/CN={common}", "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        kind = "server.ext" if name == "server" else "client.ext"
        openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                "-CAcreateserial", "-days", "2", "-extfile", kind, "-out", f"{name}.pem")  # fmt: skip
    for key in directory.glob("*.key"):
        key.chmod(0o600)


class RemoteHome(Home):
    """A home whose settings file, keys and tokens are under its own directory."""

    def __init__(self) -> None:
        super().__init__()
        self.conf = self.dir / "conf"
        self.conf.mkdir(mode=0o700)
        make_certificates(self.conf)
        self.address = ("", 0)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "XDG_CONFIG_HOME": str(self.dir / "conf")}

    def cli(self, *words: str) -> Any:
        ran = subprocess.run([str(BIN / "neuroncache"), *words, "--format", "json"], env=self.environment(),
                             capture_output=True, text=True, timeout=60)  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    def token(self, *words: str) -> str:
        return str(self.cli("tokens", "add", *words)["token"])

    def serve(self, *flags: str) -> None:
        tls = ["--listen-cert", str(self.conf / "server.pem"), "--listen-key", str(self.conf / "server.key")]
        self.start("--listen", "127.0.0.1:0", *tls, *flags)
        client = self.client()
        listener = client.get("/v1/stats")["listener"]
        client.close()
        assert listener["address"], listener
        host, port = listener["address"].rsplit(":", 1)
        self.address = (host, int(port))

    def remote(self, token: str = "", certificate: str = "") -> RemoteClient:
        return RemoteClient(self, token, certificate)

    def tls(self, certificate: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.conf / "ca.pem"))
        if certificate:
            context.load_cert_chain(self.conf / f"{certificate}.pem", self.conf / f"{certificate}.key")
        return context

    def raw_tls(self) -> ssl.SSLSocket:
        plain = socket.create_connection(self.address, timeout=PATIENCE_S)
        return self.tls().wrap_socket(plain, server_hostname="127.0.0.1")


class RemoteClient(Client):
    """Over TLS, with a token, a certificate, both, or neither."""

    def __init__(self, home: RemoteHome, token: str, certificate: str) -> None:
        self.token = token
        self.http = http.client.HTTPSConnection(
            home.address[0], home.address[1], timeout=PATIENCE_S, context=home.tls(certificate)
        )  # type: ignore[assignment]

    def call(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        if self.token:
            headers = {"Authorization": f"Bearer {self.token}", **headers}
        return super().call(method, target, body, **headers)


def sign(directory: Path, key_file: Path, manifest: dict[str, Any], time_ms: int) -> dict[str, Any]:
    """The signature of docs/formats.md, by another implementation: this code and the openssl program."""
    fields = dict(line.split(" ", 1) for line in key_file.read_text().splitlines()[1:])

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def number(value: int) -> bytes:
        return struct.pack("<Q", value)

    def pairs(items: Any) -> bytes:
        listed = list(items)
        return struct.pack("<I", len(listed)) + b"".join(text(name) + text(value) for name, value in listed)

    m = manifest
    who = m["producer"]
    message = b"neuroncache-manifest-signature-v1\0" + text(fields["id"]) + number(time_ms)
    message += bytes.fromhex(m["key"]) + b"".join(
        text(m[n]) for n in ("kind", "namespace", "label", "model", "compiler")
    )
    message += number(m["created_ms"]) + number(m["build_ms"]) + number(m["peak_rss_bytes"])
    message += text(who["host"]) + number(who["pid"]) + text(who["program"]) + text(who["version"]) + pairs(m["parts"])
    message += struct.pack("<I", len(m["outputs"]))
    for output in m["outputs"]:
        message += text(output["name"]) + bytes.fromhex(output["digest"]) + number(output["size"])
        message += struct.pack("<I", output["mode"])
    message += pairs(sorted(m["meta"].items()))

    der = bytes.fromhex("302e020100300506032b657004220420") + base64.b64decode(fields["private"])
    (directory / "sign.der").write_bytes(der)
    (directory / "message").write_bytes(message)
    openssl(directory, "pkeyutl", "-sign", "-rawin", "-keyform", "DER", "-inkey", "sign.der", "-in", "message", "-out",
            "signature")  # fmt: skip
    signature = base64.b64encode((directory / "signature").read_bytes()).decode()
    os.remove(directory / "sign.der")
    return {"v": 1, "alg": "ed25519", "key": fields["id"], "time_ms": time_ms, "sig": signature}


def secret_lines(path: Path) -> str:
    return next(line.split()[1] for line in path.read_text().splitlines() if line.startswith("private "))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
