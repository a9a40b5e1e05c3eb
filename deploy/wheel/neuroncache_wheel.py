"""The build backend of the Python package (PEP 517): one wheel that holds the Python modules and the C++ programs.

A wheel is a zip file with a record of hashes; writing it here, with fixed times and order, makes equal contents equal files, and
lets it carry what general backends do not place: native programs as scripts and a `.pth` file beside the package.

Programs come from `--config-settings build-dir=DIR` (`./x build` uses `build`); without it they are compiled first.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python_shim" / "neuroncache"
# Read at every start of Python, also when the package is gone: one line that opens nothing and cannot fail. It is needed only
# where torch does not load entry points by itself.
PTH = (
    'import os; os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1" and '
    'os.environ.get("NEURONCACHE", "").strip().lower() not in ("0", "false", "off", "no") and '
    r'exec("try:\n import neuroncache._pth\nexcept Exception:\n pass")'
    "\n"
)
# The command line tool starts the `neuroncached` beside it. The one program lies in the package, where the shim looks.
DAEMON_SCRIPT = """#!python
import os
import sys

import neuroncache

program = os.path.join(os.path.dirname(os.path.abspath(neuroncache.__file__)), "bin", "neuroncached")
try:
    os.execv(program, [program, *sys.argv[1:]])
except OSError as error:
    sys.exit(f"neuroncached: cannot run {program}: {error.strerror}; install neuroncache again")
"""
TARGETS = ("neuroncached", "neuroncache", "nc_neuronx_cc")
ENTRY_POINTS = "[torch.backends]\nneuroncache = neuroncache._autoload:install\n"
Settings = dict[str, Any] | None


def version() -> str:
    """CMakeLists.txt is the one place that holds the version."""
    match = re.search(r"project\(neuroncache VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    if match is None:
        raise RuntimeError("CMakeLists.txt does not say project(neuroncache VERSION ...)")
    return match.group(1)


def metadata() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version()}"]
    lines += [
        f"Summary: {project['description']}",
        f"License: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [f"Classifier: {text}" for text in project["classifiers"]]
    lines += ["Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text()]
    return "\n".join(lines)


def tag() -> str:
    """The programs need only the C library, so its version decides where they run."""
    name, libc = platform.libc_ver()
    machine = platform.machine()
    return f"py3-none-manylinux_{libc.replace('.', '_')}_{machine}" if name == "glibc" else f"py3-none-linux_{machine}"


def programs(settings: Settings) -> dict[str, bytes]:
    """The stripped programs; compiles them where no build directory is given."""
    given = (settings or {}).get("build-dir")
    build = ROOT / given if given else ROOT / "build"
    if not given:
        subprocess.run(["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(build)], check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", *TARGETS], check=True)
    found: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("bin/neuroncached", "bin/neuroncache", "libexec/neuronx-cc"):
            program = build / name
            if not program.exists():
                raise RuntimeError(f"{program} is not there; run ./x build")
            stripped = Path(scratch) / program.name
            strip = shutil.which("strip")
            if strip:
                subprocess.run([strip, "-o", str(stripped), str(program)], check=True)
            else:
                shutil.copyfile(program, stripped)
            found[program.name] = stripped.read_bytes()
    return found


def contents(settings: Settings) -> dict[str, tuple[bytes, int]]:
    """Every file of the wheel except its record: name -> bytes, mode."""
    base = f"neuroncache-{version()}"
    files: dict[str, tuple[bytes, int]] = {}
    for path in sorted(PACKAGE.rglob("*")):
        inner = path.relative_to(PACKAGE.parent)
        if path.is_file() and "__pycache__" not in inner.parts and inner.parts[1] not in ("bin", "libexec"):
            files[str(inner)] = (path.read_bytes(), 0o644)
    if "neuroncache/__init__.py" not in files:
        raise RuntimeError(f"{PACKAGE} holds no package")
    native = programs(settings)
    files["neuroncache/bin/neuroncached"] = (native["neuroncached"], 0o755)
    # In a directory of its own, which goes first on PATH; `../bin/neuroncached` is its daemon.
    files["neuroncache/libexec/neuronx-cc"] = (native["neuronx-cc"], 0o755)
    files[f"{base}.data/scripts/neuroncache"] = (native["neuroncache"], 0o755)
    files[f"{base}.data/scripts/neuroncached"] = (DAEMON_SCRIPT.encode(), 0o755)
    files["neuroncache.pth"] = (PTH.encode(), 0o644)
    info = f"{base}.dist-info"
    files[f"{info}/METADATA"] = (metadata().encode(), 0o644)
    wheel = f"Wheel-Version: 1.0\nGenerator: neuroncache_wheel\nRoot-Is-Purelib: false\nTag: {tag()}\n"
    files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    files[f"{info}/entry_points.txt"] = (ENTRY_POINTS.encode(), 0o644)
    files[f"{info}/licenses/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), 0o644)
    return files


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    del metadata_directory
    files = contents(config_settings)
    record = f"neuroncache-{version()}.dist-info/RECORD"
    rows = []
    for name, (data, _mode) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    files[record] = ("".join([*rows, f"{record},,\n"]).encode(), 0o644)
    filename = f"neuroncache-{version()}-{tag()}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / filename, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return filename


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """The tracked files of a checkout."""
    del config_settings
    base = f"neuroncache-{version()}"
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    with tarfile.open(os.path.join(sdist_directory, f"{base}.tar.gz"), "w:gz") as archive:
        for name in names:
            archive.add(ROOT / name, f"{base}/{name}", recursive=False)
    return f"{base}.tar.gz"
