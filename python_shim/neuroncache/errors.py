"""Exceptions of the package. None of them reaches a user of ``torch.compile`` unless ``strict`` is on."""

from __future__ import annotations

import sys


class NeuroncacheError(Exception):
    """Base of every exception that this package raises."""


class Unsupported(NeuroncacheError):
    """A graph that is left to stock ``torch.compile``; `op` and `source` say what in it, where that is known.

    `passing`: the cause lies in this process or host (no compiler, a full disk), so another may succeed with the same graph.
    """

    def __init__(self, reason: str, *, op: str = "", source: str = "", passing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.op = op
        self.source = source
        self.passing = passing


class LoadRefused(NeuroncacheError):
    """An artifact that is intact but not for this process: another CPU, torch build or calling convention."""


class BlobError(NeuroncacheError):
    """A stored blob is gone, or its bytes are not those that the manifest promised."""


class DaemonUnavailable(NeuroncacheError):
    """The daemon cannot be reached, does not answer, or does not speak this protocol."""


class ProtocolError(NeuroncacheError):
    """The daemon answered with an error document."""

    def __init__(self, status: int, code: str, message: str, action: str = "") -> None:
        super().__init__(f"{message} ({code}){': ' + action if action else ''}")
        self.status = status
        self.code = code
        self.message = message
        self.action = action


class SettingError(NeuroncacheError):
    """A setting has a name or a value that is not allowed."""


class PaddingRuleError(NeuroncacheError):
    """A padding rule that says what cannot be meant, or that was found to be wrong."""


def passes_through(error: BaseException) -> bool:
    """Exceptions that Dynamo takes from a backend as signals: trace again, skip this frame. Other errors are repeated by stock."""
    if not isinstance(error, Exception):
        return True
    signals = sys.modules.get("torch._dynamo.exc")
    kinds = tuple(
        kind
        for name in ("TensorifyScalarRestartAnalysis", "SkipFrame")
        if isinstance(kind := getattr(signals, name, None), type)
    )
    return isinstance(error, kinds)
