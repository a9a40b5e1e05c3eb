"""Settings that the shim reads. Their names, defaults and meaning are those of the daemon's table of settings.

Sources, later wins: default, settings file (TOML), environment ``NEURONCACHE_<NAME>``, assignment in Python::

    import neuroncache
    neuroncache.config.namespace = "team-a"   # checked; takes effect at the next graph

A name or value that is not allowed raises `SettingError` when assigned, and gives one warning (and the default) when it
comes from a file or the environment: a typing error there must not stop anybody's training.
"""

from __future__ import annotations

import os
import re
import sys
import types
from typing import Any

from neuroncache import log
from neuroncache.errors import SettingError
from neuroncache.locks import module_lock

# The values of this module's attributes, for type checkers; they are served by _ConfigModule below.
enabled: bool
dir: str
socket: str
namespace: str
log_level: str
daemon_path: str
autostart: bool
connect_timeout: float
wait_timeout: float
cpu_class: str
strict: bool
bucketing: str
static_backends: tuple[str, ...]
autograd_backends: tuple[str, ...]
max_buckets: int
max_waste: float
job: str
verify: str
padded_random: str
record: str

# name -> (type, default, allowed choices or a pattern). Durations are given as "5s" and read as seconds.
_TABLE: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "enabled": ("bool", True, ()),
    "dir": ("path", "", ()),
    "socket": ("path", "", ()),
    "namespace": ("name", "default", ()),
    "log_level": ("choice", "info", ("trace", "debug", "info", "warn", "error", "off")),
    "daemon_path": ("path", "", ()),
    "autostart": ("bool", True, ()),
    "connect_timeout": ("duration", 5.0, ()),
    "wait_timeout": ("duration", 0.0, ()),
    "cpu_class": ("choice", "auto", ("auto", "x86-64-v3", "x86-64-v4")),
    "strict": ("bool", False, ()),
    "bucketing": ("choice", "auto", ("auto", "on", "off")),
    "static_backends": ("names", ("neuron",), ()),
    "autograd_backends": ("names", (), ()),
    "max_buckets": ("int", 16, (1, 1024)),
    "max_waste": ("number", 0.0, (0.0, 10.0)),
    "job": ("text", "", ()),
    "verify": ("choice", "first", ("off", "first", "sample")),
    "record": ("run", "", ()),
    "padded_random": ("choice", "strict", ("strict", "statistical")),
}

# Settings of the daemon and the other programs, which this process has no use for but must not call misspelt.
_OTHERS = frozenset(
    """read_only max_bytes max_entries min_free max_blob namespace_quota failure_ttl lease_ttl orphan_grace compression
    build_memory build_cores build_memory_guess build_timeout cancel_unwanted recordings_bytes recordings_ttl
    trust trust_keys sign_key socket_group listen listen_cert listen_key listen_client_ca listen_tokens listen_plain
    tiers cluster_leases cluster_lease_period cluster_wait
    io_threads disk_threads max_connections request_timeout idle_exit drain log_file config
    real_cc progress retry_failed record_inputs""".split()
)

_NAME = r"[A-Za-z0-9._-]{1,64}"
_NAMES = {"name": _NAME, "run": f"{_NAME}(~{_NAME})?"}  # a run is of a recording, by its name, or of one run: NAME~RUN
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_lock = module_lock()
_values: dict[str, tuple[Any, str]] | None = None  # name -> (value, origin); None until first use


def get(name: str) -> Any:
    """The value in force. Raises `SettingError` for a name that is no setting of the shim."""
    return _load()[_known(name)][0]


def origin(name: str) -> str:
    """Where the value comes from: ``default``, ``file ...``, ``environment ...`` or ``python``."""
    return _load()[_known(name)][1]


def set(name: str, value: Any) -> None:
    """Sets a value for this process. Raises `SettingError` when the name or the value is not allowed."""
    _known(name)
    checked = _check(name, value)
    values = _load()
    with _lock:
        values[name] = (checked, "python")


def settings() -> dict[str, Any]:
    """All settings of the shim with the values in force."""
    return {name: value for name, (value, _) in _load().items()}


def reload() -> None:
    """Forgets what was read and set: file and environment are read again at the next use."""
    global _values
    with _lock:
        _values = None


def daemon_environment() -> dict[str, str]:
    """The environment for a daemon that is started from here: without misspelt settings, which it would not accept."""
    prefix = "NEURONCACHE_"
    return {
        variable: text
        for variable, text in os.environ.items()
        if not variable.startswith(prefix) or (name := variable[len(prefix) :].lower()) in _TABLE or name in _OTHERS
    }


def socket_path() -> str:
    """Where the daemon listens: the setting, else the place that the daemon would choose."""
    path: str = get("socket")
    if path:
        return path
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = f"{runtime}/neuroncache" if runtime else f"/tmp/neuroncache-{os.getuid()}"
    return f"{base}/daemon.sock"


def file_path() -> str:
    """The settings file, which need not exist."""
    named = os.environ.get("NEURONCACHE_CONFIG")
    if named:
        return named
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return f"{base}/neuroncache/config.toml"


def _known(name: str) -> str:
    if name not in _TABLE:
        raise SettingError(f"'{name}' is not a setting of the Python shim{_hint(name)}")
    return name


def _hint(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, [*_TABLE, *_OTHERS], n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else f"; settings are: {', '.join(sorted(_TABLE))}"


def _load() -> dict[str, tuple[Any, str]]:
    global _values
    values = _values
    if values is not None:
        return values
    with _lock:
        if _values is None:
            values = {name: (default, "default") for name, (_, default, _) in _TABLE.items()}
            _read_file(values)
            _read_environment(values)
            _values = values
        result = _values
    log.set_level(result["log_level"][0])
    return result


def _read_file(values: dict[str, tuple[Any, str]]) -> None:
    path = file_path()
    if not os.path.exists(path):
        if os.environ.get("NEURONCACHE_CONFIG"):
            log.warn("settings-file", f"the settings file {path} (NEURONCACHE_CONFIG) does not exist; it is ignored")
        return
    try:
        import tomllib  # only where there is a file: 5 ms

        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            if info.st_size and (info.st_uid not in (0, os.geteuid()) or info.st_mode & 0o002):
                raise OSError(
                    "who writes it decides what runs; it must be yours or root's, and not writable by everybody"
                )
            document = tomllib.load(file)
    except (OSError, ValueError, ImportError) as error:
        log.warn("settings-file", f"the settings file {path} cannot be read and is ignored: {error}")
        return
    for name, value in document.items():
        _take(values, name, value, f"file {path}", name)


def _read_environment(values: dict[str, tuple[Any, str]]) -> None:
    for variable, text in os.environ.items():
        if variable == "NEURONCACHE":
            _take(values, "enabled", text, "environment NEURONCACHE", variable)
        elif variable.startswith("NEURONCACHE_"):
            _take(values, variable[12:].lower(), text, f"environment {variable}", variable)


def _take(values: dict[str, tuple[Any, str]], name: str, value: Any, source: str, shown: str) -> None:
    if name not in _TABLE:
        if name not in _OTHERS:
            log.warn(f"setting-{name}", f"{source}: '{shown}' is not a setting and is ignored{_hint(name)}")
        return
    try:
        values[name] = (_check(name, value), source)
    except SettingError as error:
        log.warn(f"setting-{name}", f"{source}: {error}; the default is used")


def _check(name: str, value: Any) -> Any:
    kind, default, choices = _TABLE[name]
    text = str(value).strip()
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off"):
            return False
        raise SettingError(f"'{name}' is '{text}'; allowed are 1, 0, true, false, on, off, yes, no")
    if kind == "duration":
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if value >= 0:
                return float(value)
        elif match := re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text):
            return float(match[1]) * _UNITS[match[2] or "s"]
        raise SettingError(f"'{name}' is '{text}'; a time is a number with ms, s, m, h or d, as in 5s")
    if kind == "choice" and text not in choices:
        raise SettingError(f"'{name}' is '{text}'; allowed are {', '.join(choices)}")
    if kind in _NAMES and text == default:
        return text
    if kind in _NAMES and not re.fullmatch(_NAMES[kind], text):
        raise SettingError(f"'{name}' is '{text}'; allowed are 1 to 64 letters, digits, '.', '_' and '-'")
    if kind in ("int", "number"):
        try:
            number = int(text) if kind == "int" else float(text)
        except ValueError:
            number = choices[0] - 1
        if isinstance(value, bool) or not choices[0] <= number <= choices[1]:
            raise SettingError(f"'{name}' is '{text}'; allowed is a number from {choices[0]} to {choices[1]}")
        return number
    if kind == "names":
        names = [part.strip() for part in (text.split(",") if isinstance(value, str) else value)]
        if not all(re.fullmatch(r"[A-Za-z0-9._-]{1,64}", part) for part in names if part):
            raise SettingError(f"'{name}' is '{text}'; allowed are names, separated by commas")
        return tuple(part for part in names if part)
    if kind == "path":
        return os.path.expanduser(text)
    return text


class _ConfigModule(types.ModuleType):
    """Serves the settings as attributes of this module, and checks assignments to them."""

    def __getattr__(self, name: str) -> Any:
        if name in _TABLE:
            return get(name)
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"'{name}' is not a setting of the Python shim{_hint(name)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _TABLE:
            set(name, value)
            if name == "log_level":
                log.set_level(value)
        elif name.startswith("_") or name in self.__dict__:
            super().__setattr__(name, value)
        else:
            raise SettingError(f"'{name}' is not a setting of the Python shim{_hint(name)}")


sys.modules[__name__].__class__ = _ConfigModule
