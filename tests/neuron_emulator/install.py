"""Makes the environment of the emulated toolchain, which sees the packages of the Python that runs this behind its own.

python install.py DIRECTORY

Prints what it did. Status 77, with the reason: this platform cannot have it. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"


def lacking() -> str | None:
    """Why there are no packages for this platform; None: there are."""
    machine, version = os.uname().machine, sys.version_info[:2]
    if sys.platform != "linux" or machine not in ("x86_64", "aarch64"):
        return f"there is no torch-mlir for {sys.platform} on {machine}"
    return None if version <= (3, 14) else f"there is no torch-mlir for Python {version[0]}.{version[1]}"


def install(directory: Path) -> str:
    behind = sysconfig.get_path("purelib")
    stamp = directory / ".neuroncache-requirements"
    wanted = hashlib.sha256(f"{REQUIREMENTS.read_text()}{sys.version}{behind}{HERE}".encode()).hexdigest()
    python = directory / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return "up to date"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", directory], check=True)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    # Without what they depend on: that is in the main environment, at the versions that are tested there.
    subprocess.run([*pip, "--no-deps", "-r", REQUIREMENTS], check=True)
    packages = next(directory.glob("lib/python3*/site-packages"))
    (packages / "main.pth").write_text(f"{behind}\n")
    (directory / "bin" / "neuronx-cc").symlink_to(HERE / "neuronx-cc")
    stamp.write_text(wanted)
    return f"installed into {directory}"


if __name__ == "__main__":
    if reason := lacking():
        print(reason)
        sys.exit(77)
    print(install(Path(sys.argv[1])))
