"""The compilers of graphs of fixed sizes: a static-only backend, or inductor by way of the artifact cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import fx

from neuroncache import compat, log
from neuroncache.cache import Cache

# A compiled graph: takes a list, which it may empty, and returns all outputs.
Function = Callable[[list[Any]], Sequence[Any]]


class Inner(Protocol):
    """Compiles functional graphs of fixed sizes. Called under `compat.compile_lock`, without autograd."""

    name: str
    differentiates: bool  # takes forward graphs only, and autograd goes through what it returns
    static_only: bool
    background: str  # where it may compile while the program runs: "process", "thread", "never"

    def decompositions(self) -> dict[Any, Any]:
        """What AOTAutograd is to decompose for this compiler."""

    def improve(self, gm: fx.GraphModule) -> fx.GraphModule:
        """What the compiler does to a symbolic graph before it is cut into forward and backward."""

    def compile(self, gm: fx.GraphModule, inputs: Sequence[torch.Tensor], role: str) -> Function:
        """`inputs`: real tensors of the sizes and strides that every later call will have."""


class StaticBackend:
    """A backend of Dynamo that compiles fixed sizes only. It gets plain functional graphs, and never a symbol."""

    differentiates = False
    static_only = True

    def __init__(self, name: str, compiler: Callable[[Any, Any], Any]) -> None:
        self.name = name
        self.compiler = compiler
        self.background = "thread" if getattr(compiler, "neuroncache_thread_safe", False) is True else "never"

    def decompositions(self) -> dict[Any, Any]:
        return compat.core_decompositions()

    def improve(self, gm: fx.GraphModule) -> fx.GraphModule:
        return gm

    def compile(self, gm: fx.GraphModule, inputs: Sequence[torch.Tensor], role: str) -> Function:
        examples = [value.detach() for value in inputs]
        compat.propagate_fakes(gm, examples)
        function = self.compiler(gm, examples)
        if not callable(function):
            raise TypeError(f"the backend {self.name} returned a {type(function).__name__}, which cannot be called")
        return lambda values: function(*values)


class Inductor:
    """Inductor, each graph through the store of artifacts."""

    name = "inductor"
    differentiates = False
    static_only = False
    background = "process"

    def __init__(self, options: dict[str, Any], cache: Cache) -> None:
        self.options = options
        self.cache = cache
        self._settings: Any = None

    def decompositions(self) -> dict[Any, Any]:
        return compat.inductor_decompositions()

    def improve(self, gm: fx.GraphModule) -> fx.GraphModule:
        # Attention written by hand becomes SDPA, and what does nothing goes. Later, on the padded graphs, masks are in the way of
        # the patterns, and forward and backward are apart.
        with compat.inductor_config().patch(self.options):
            return compat.joint_graph_passes(gm)

    def compile(self, gm: fx.GraphModule, inputs: Sequence[torch.Tensor], role: str) -> Function:
        from neuroncache import graphs, inductor
        from neuroncache.compile import cpu_class_for

        settings = compat.inductor_config()
        with settings.patch(self.options):
            cpu_class = cpu_class_for(settings)
            with inductor.pinned(cpu_class), compat.static_trace(inputs) as fakes:
                # Once more through the decompositions: a plan holds operators that have no code by themselves.
                gm = compat.retrace(gm, fakes, self.decompositions())
                keywords = {"is_backward": role == "backward", "is_inference": role == "inference"}
                result = graphs.compile_functional(
                    gm,
                    fakes,
                    keywords,
                    cache=self.cache,
                    cpu_class=cpu_class,
                    refused=lambda reason, passing: log.debug("a padded graph has no artifact: %s", reason),
                )
        function: Function = result.graph if isinstance(result, graphs.Artifact) else result
        return function
