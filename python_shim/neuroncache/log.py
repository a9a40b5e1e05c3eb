"""One-line messages for people, each kind once per process, through ``logging`` (logger ``neuroncache``)."""

from __future__ import annotations

import logging

from neuroncache.locks import module_lock

_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}

logger = logging.getLogger("neuroncache")
_lock = module_lock()
_said: set[str] = set()


def set_level(name: str) -> None:
    """`name` as in the setting ``log_level``."""
    logger.setLevel(_LEVELS.get(name, logging.WARNING))


def warn(kind: str, message: str) -> bool:
    """Warns once per `kind`; later ones of that kind go to the debug level. True when it was the first."""
    with _lock:
        first = kind not in _said
        _said.add(kind)
    line = " ".join(str(message).split())
    if first:
        logger.warning("neuroncache: %s", line)
    else:
        logger.debug("neuroncache: %s", line)
    return first


def debug(message: str, *arguments: object) -> None:
    logger.debug("neuroncache: " + message, *arguments)


def info(message: str, *arguments: object) -> None:
    logger.info("neuroncache: " + message, *arguments)
