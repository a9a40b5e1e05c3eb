"""Entry point of group ``torch.backends``: torch calls `install` at the end of ``import torch``.

An exception here would abort the user's ``import torch``; a slow import would cost every program. So it only puts two
hooks in place, opens nothing, and keeps whatever goes wrong to itself (`problem`).
"""

from __future__ import annotations

import os

OFF = ("0", "off", "false", "no")
problem: BaseException | None = None


def install() -> None:
    """Makes ``torch.compile`` go through the cache, unless ``NEURONCACHE=0``."""
    global problem
    try:
        if os.environ.get("NEURONCACHE", "").strip().lower() in OFF:
            return
        from neuroncache import hooks

        hooks.install()
    except Exception as error:
        problem = error
