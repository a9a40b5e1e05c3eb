"""Starting the daemon when it is needed and not there."""

from __future__ import annotations

import os
import shutil
import subprocess

from neuroncache import config, log


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
    """Starts the daemon in a session of its own and returns without waiting for its socket. False: there is none to start.

    Any number of processes may do this at once: a daemon that finds another one live leaves quietly.
    """
    program = daemon_program()
    if program is None:
        log.warn(
            "no-daemon",
            "the program neuroncached was not found, so nothing is cached; install it, or name it in NEURONCACHE_DAEMON_PATH",
        )
        return False
    environment = dict(os.environ, NEURONCACHE_SOCKET=config.socket_path())
    if config.get("dir"):
        environment["NEURONCACHE_DIR"] = config.get("dir")
    try:
        # The shell ends at once, so the daemon is nobody's child here: no zombie stays, and no signal of the terminal
        # reaches it.
        subprocess.run(
            ["/bin/sh", "-c", '"$0" </dev/null >/dev/null 2>&1 &', program],
            env=environment,
            cwd="/",
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warn("no-daemon", f"{program} cannot be started, so nothing is cached: {error}")
        return False
    return os.access(program, os.X_OK)
