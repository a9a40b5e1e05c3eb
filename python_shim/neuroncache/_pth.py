"""Activation for processes in which torch does not load its extensions (``TORCH_DEVICE_BACKEND_AUTOLOAD=0``).

Imported from ``neuroncache.pth`` at interpreter start. Where torch's own autoload is on this does nothing.
"""

from __future__ import annotations

import os
import sys


def _arm() -> None:
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
        return
    from neuroncache import _autoload, hooks

    if os.environ.get("NEURONCACHE", "").strip().lower() in _autoload.OFF:
        return
    if "torch" in sys.modules:
        _autoload.install()
    else:
        hooks.after_import("torch", lambda module: _autoload.install())


try:
    _arm()
except Exception:
    # Nothing here is worth failing the start of an interpreter.
    pass
