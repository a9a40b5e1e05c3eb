"""The compiled graph as AOTAutograd holds it: callable, and pickled as nothing but the key of its artifact."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from neuroncache import compat

_Base: Any = compat.output_code_base()


@dataclasses.dataclass
class GraphCode(_Base):
    """A graph of a stored entry. `key` names its artifact; the code itself is attached when the entry is restored."""

    key: str = ""

    def __post_init__(self) -> None:
        self._function: Callable[[list[Any]], Any] = self._unattached
        self._boxed_call = True

    def __call__(self, inputs: list[Any]) -> Any:
        return self._function(inputs)

    def attach(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function

    def _unattached(self, inputs: Sequence[Any]) -> Any:
        raise RuntimeError(f"neuroncache: the code of graph {self.key[:12]} was not attached")

    # -- what AOTAutograd asks of such an object --

    def prepare_for_serialization(self) -> None:
        self._function = self._unattached

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
        """Nothing to do: the code is attached, and the strides of its outputs are baked into the entry."""

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There are no Triton kernels on a CPU."""

    def __getstate__(self) -> dict[str, str]:
        return {"key": self.key}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.key = state["key"]
        self._fx_graph_cache_key = None
        self._fx_graph_cache_debug_lines = None
        self._time_taken_ns = 0
        self.__post_init__()
