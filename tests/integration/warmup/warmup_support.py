"""A home in which commands are warmed up: each compiles some modules with the `neuronx-cc` on PATH."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli_support import Daemon, validate
from wrapper_support import BIN, STUB, Home

COMPILE = """
status=0
for name in "$@"; do
  neuronx-cc compile "$name.pb" --target "${TARGET:-trn2}" --output "$name.neff" >/dev/null 2>&1 || status=9
done
exit ${STATUS:-$status}
"""


@dataclass
class Done:
    status: int
    out: str
    err: str

    @property
    def report(self) -> Any:
        return json.loads(self.out)


class Warm(Home):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        # What puts the wrapper first on PATH is the verb.
        self.env["PATH"] = self.env["PATH"][self.env["PATH"].index(str(STUB)) :]
        self.env["TMPDIR"] = str(directory / "tmp")
        (directory / "tmp").mkdir()
        self.made = 0

    def modules(self, *names: str) -> list[str]:
        for name in names:
            self.input(f"{name}.pb", f"module {name}".encode())
        return ["sh", "-c", COMPILE, "sh", *names]

    def start(self, *words: str, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [str(BIN / "neuroncache"), *words], env={**self.env, **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.work,
        )  # fmt: skip
        self.started.append(process)
        return process

    def verb(self, *words: str, **env: str) -> Done:
        process = self.start(*words, **env)
        out, err = process.communicate(timeout=180)
        return Done(process.returncode, out.decode(), err.decode())

    def check(self, done: Done, schema: str) -> Any:
        """A report in the form that its schema says."""
        assert done.out, done.err
        return validate(json.loads(done.out), schema)

    def version(self) -> str:
        return "2.20.9961.0+0acef03a"  # of the stub

    def compiler(self, version: str) -> Path:
        """The directory of another compiler, which is like the stub."""
        self.made += 1
        directory = self.dir / f"compiler{self.made}"
        directory.mkdir()
        text = (STUB / "neuronx-cc").read_text().replace(self.version(), version)
        (directory / "neuronx-cc").write_text(f"{text}# number {self.made}\n")
        (directory / "neuronx-cc").chmod(0o755)
        return directory

    def json(self, verb: str, *words: str, **env: str) -> tuple[int, dict[str, int], Any]:
        """The status, the counts that are not 0, and the whole report."""
        done = self.verb(verb, "--format", "json", *words, **env)
        report = validate(json.loads(done.out), verb)
        return done.status, {name: n for name, n in report["counts"].items() if n}, report

    def call(self, method: str, target: str, body: Any = None) -> Any:
        daemon = Daemon(Path(self.env["NEURONCACHE_SOCKET"]))
        try:
            status, answer = daemon.call(method, target, None if body is None else json.dumps(body).encode())
        finally:
            daemon.close()
        assert status < 400, answer
        return answer

    def shell(self, script: str, **env: str) -> int:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script], env={**self.env, **env}, cwd=self.work, capture_output=True, timeout=180
        )  # fmt: skip
        return done.returncode
