"""Starting the daemon when it is needed and not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile

from neuroncache import config, log

_slow: list[subprocess.Popen[bytes]] = []  # starters that took too long, to be reaped by later calls


def daemon_program() -> str | None:
    """The ``neuroncached`` to start: the setting ``daemon_path``, else the one in this package, else the one on PATH."""
    configured: str = config.get("daemon_path")
    if configured:
        return configured
    packaged = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "neuroncached")
    if os.access(packaged, os.X_OK):
        return packaged
    return shutil.which("neuroncached")


def start_daemon() -> bool:
    """Starts the daemon, which puts itself into a session of its own. False: there is none, or it could not start.

    Any number of processes may do this at once: a daemon that finds another one live leaves quietly.
    """
    program = daemon_program()
    if program is None:
        log.warn(
            "start",
            "the program neuroncached was not found, so nothing is cached; name it in NEURONCACHE_DAEMON_PATH",
        )
        return False
    _slow[:] = [process for process in _slow if process.poll() is None]
    command = [program, "--socket", config.socket_path(), "--detach"]
    if config.get("dir"):
        command += ["--dir", config.get("dir")]
    try:
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command,
                env=config.daemon_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
            try:
                status = process.wait(config.get("connect_timeout"))
            except subprocess.TimeoutExpired:
                _slow.append(process)
                return True
            if status == 0:
                return True
            said.seek(0)
            reason = said.read(4096).decode(errors="replace").strip() or f"status {status}"
    except OSError as error:
        reason = str(error)
    log.warn("start", f"{program} cannot be started, so nothing is cached: {reason}")
    return False
