"""neuroncache: ``torch.compile`` without compiling the same thing twice.

Nothing needs to be called: once installed, the package catches every graph that ``torch.compile`` hands to inductor, and
takes the compiled result from the daemon's store when any process has built it before. For backends that compile graphs of fixed
sizes only (``neuron``; setting ``static_backends``) it runs graphs with open sizes on a few padded ones, with equal results.

    neuroncache.stats()         what this process compiled and what it did not need to
    neuroncache.explain_last()  the last graph: hit, built or left to stock torch, and why
    neuroncache.register_padding_rule()  how an operator of your own behaves on padded tensors
    neuroncache.replan()        new buckets from the sizes seen, at a point that all ranks reach together
    neuroncache.disable()       stock torch.compile for the graphs that follow
    neuroncache.config          settings, e.g. neuroncache.config.namespace = "team-a"

Importing the package imports neither torch nor anything else of weight.
"""

from __future__ import annotations

from neuroncache._version import VERSION as __version__

TYPE_CHECKING = False  # importing typing costs more than everything here
if TYPE_CHECKING:
    from typing import Any

    from neuroncache import config as config
    from neuroncache.api import check_padding_rule as check_padding_rule
    from neuroncache.api import disable as disable
    from neuroncache.api import enable as enable
    from neuroncache.api import explain_last as explain_last
    from neuroncache.api import register_padding_rule as register_padding_rule
    from neuroncache.api import replan as replan
    from neuroncache.api import stats as stats

_FUNCTIONS = ("check_padding_rule", "disable", "enable", "explain_last", "register_padding_rule", "replan", "stats")
__all__ = [
    "__version__",
    "check_padding_rule",
    "config",
    "disable",
    "enable",
    "explain_last",
    "register_padding_rule",
    "replan",
    "stats",
]


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        from neuroncache import api

        value = globals()[name] = getattr(api, name)
        return value
    if name == "config":
        import importlib

        return importlib.import_module("neuroncache.config")
    raise AttributeError(f"module 'neuroncache' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
