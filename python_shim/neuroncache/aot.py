"""A captured graph to a callable: AOTAutograd's result from the store, or AOTAutograd run here and its result stored.

The stored entry holds torch's own description of the result (a pickle, read only after its digest was verified) and all
parts of the graphs in it, so that one look-up brings everything and nothing can be missing. On a hit neither AOTAutograd nor
inductor runs; what AOTAutograd guarded by is evaluated again.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from neuroncache import canonical, compat, cpu, graphs, keys
from neuroncache.cache import Built, Cache, Hit
from neuroncache.errors import LoadRefused, Unsupported
from neuroncache.graphs import Artifact
from neuroncache.outputcode import GraphCode

Function = Callable[[list[Any]], Any]

ENTRY = "entry"
RESTART = "restart"
MAX_VARIANTS = 8


class Restart:
    """AOTAutograd found that these float inputs are part of the shapes: Dynamo must trace again with them as constants."""

    def __init__(self, symbols: list[str]) -> None:
        self.symbols = symbols  # ids in the canonical graph


class OtherGuards:
    """A stored entry holds for other sizes than those here."""

    def __init__(self, guards: str) -> None:
        self.guards = guards


class BackwardModule:
    """The backward graph as a module, for compiled autograd alone: kept packed, since hardly anybody asks for it."""

    def __init__(self, module: Any) -> None:
        self.packed = zlib.compress(pickle.dumps(module), 1)

    def deserialize(self) -> Any:
        return _unpickle(zlib.decompress(self.packed)).deserialize()


class Compilation:
    """One captured graph on its way through the cache."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        inputs: Sequence[Any],
        options: dict[str, Any],
        cache: Cache,
        cpu_class: cpu.CpuClass,
    ) -> None:
        self.gm = gm
        self.options = options
        self.inputs = list(inputs)
        self.cache = cache
        self.cpu_class = cpu_class
        self.refusals: list[str] = []
        self._passing = False
        self._artifacts: dict[str, Artifact] = {}
        self._symbols: Any = None

    def run(self) -> Callable[..., Any]:
        """The compiled graph as Dynamo wants it. Raises the restart that Dynamo must see."""
        try:
            return self._run()
        finally:
            # A backward graph that is compiled later keeps this object alive; it needs none of these.
            self.inputs = []
            self._artifacts = {}
            self._symbols = None

    def _run(self) -> Callable[..., Any]:
        try:
            if reason := compat.transforms_active():
                raise Unsupported(reason)
            if compat.fakified_first_call():
                raise Unsupported("the first call is made with fake tensors")
            if hasattr(self.gm, "saved_tensors_hooks_pack_0"):
                raise Unsupported("saved-tensor hooks")
            graph = canonical.export_captured(self.gm)
            self._symbols = graph.symbols
            details = keys.canonical_details(inputs=keys.input_facts(self.inputs), training=bool(self.gm.training))
            parts = keys.parts_of(keys.Request("aot", graph, self.cpu_class, details))
        except Unsupported as error:
            # The graphs in it may be stored all the same.
            self.refused(f"captured: {error.op + ': ' if error.op else ''}{error.reason}")
            return self.compile()
        label = f"captured {len(graph.document['nodes'])} nodes"
        for _ in range(MAX_VARIANTS):
            result = self.cache.obtain(
                "aot",
                parts,
                label=label,
                compiler=f"inductor {torch.__version__}",
                build=self.build,
                load=self.load,
            )
            if not isinstance(result, OtherGuards):
                break
            parts = sorted([*parts, (f"without.{len(parts)}", keys.canonical_details(guards=result.guards))])
        else:
            self.refused("captured: entries exist for other sizes only")
            return self.compile()
        if isinstance(result, Restart):
            names = {identity: name for name, identity in self._symbols.by_name().items()}
            raise compat.restart_with([names[identity] for identity in result.symbols])
        function: Callable[..., Any] = result
        return function

    def refused(self, reason: str, passing: bool = False) -> None:
        self.refusals.append(reason)
        self._passing = self._passing or passing

    # -- making it --------------------------------------------------------------------------------------------------

    def compile(self) -> Callable[..., Any]:
        """Inductor's way, with the functional graphs through the cache."""
        from neuroncache import inductor

        with inductor.pinned(self.cpu_class):
            return inductor.whole(self.gm, self.inputs, self._inner)

    def _inner(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any) -> Any:
        from neuroncache import inductor

        # A backward graph may get here long after the forward call, when the settings of this graph are no longer in force.
        settings = compat.inductor_config()
        with compat.no_modes(), settings.patch(self.options), inductor.pinned(self.cpu_class):
            result = graphs.compile_functional(
                gm, example_inputs, keywords, cache=self.cache, cpu_class=self.cpu_class, refused=self.refused
            )
        if not isinstance(result, Artifact):
            return result
        self._artifacts[result.key] = result
        code = GraphCode(result.key)
        code.attach(result.graph)
        return code

    def build(self) -> Built[Any]:
        entries: list[Any] = []
        guards_before = compat.aot_guards_count()
        known_floats = compat.specialized_floats()
        try:
            with compat.captured_entry("neuroncache", entries.append):
                function = self.compile()
        except Exception as error:
            if not compat.is_restart(error):
                raise
            return self._restart(compat.specialized_floats() - known_floats, error)
        if self.refusals:
            return Built(function, None, refusal=self.refusals[0], passing=self._passing)
        try:
            if len(entries) != 1:
                raise Unsupported(f"AOTAutograd gave {len(entries)} entries")
            if compat.aot_guards_count() != guards_before:
                raise Unsupported("AOTAutograd guards by which inputs share memory")
            outputs = self._outputs(entries[0])
        except Unsupported as error:
            self.refused(f"captured: {error.reason}")
            return Built(function, None, refusal=error.reason)
        uncompressed = frozenset(name for name in outputs if name.endswith(graphs.LIBRARY))
        meta = {"graphs": str(len(self._artifacts)), "cpu_class": self.cpu_class.name}
        return Built(function, outputs, uncompressed, meta)

    def _restart(self, names: set[str], error: Exception) -> Built[Any]:
        ids = self._symbols.by_name()
        if not names or any(name not in ids for name in names):
            raise error
        symbols = sorted(ids[name] for name in names)
        return Built(Restart(symbols), {RESTART: " ".join(symbols).encode()})

    def _outputs(self, entry: Any) -> dict[str, bytes]:
        """The entry as blobs: torch's description and, under numbers, the parts of each graph."""
        outputs: dict[str, bytes] = {}
        for index, code in enumerate(_codes(entry)):
            if not isinstance(code, GraphCode) or code.key not in self._artifacts:
                raise Unsupported("a graph of the entry has no artifact")
            for name, data in self._artifacts[code.key].parts.items():
                outputs[f"{index}.{name}"] = data
        if entry.maybe_subclass_meta is not None:
            raise Unsupported("tensor subclasses")
        backward = entry.serialized_bw_module
        stripped = dataclasses.replace(
            entry,
            aot_joint_graph_str=None,
            aot_forward_graph_str=None,
            aot_backward_graph_str=None,
            min_cut_info_str=None,
            serialized_bw_module=None if backward is None else BackwardModule(backward),
            # Names of the user's variables, which the key does not hold.
            sanitized_aot_config=dataclasses.replace(
                entry.sanitized_aot_config, aot_autograd_arg_pos_to_source=None, precompile_backend_id=None, aot_id=0
            ),
        )
        try:
            data = pickle.dumps(stripped)
            _unpickle(data)
        except Unsupported:
            raise
        except Exception as error:
            raise Unsupported(f"AOTAutograd's result cannot be pickled: {type(error).__name__}: {error}") from None
        outputs[ENTRY] = data
        return outputs

    # -- loading it -------------------------------------------------------------------------------------------------

    def load(self, hit: Hit) -> Any:
        names = {output["name"] for output in hit.manifest["outputs"]}
        if RESTART in names:
            return Restart(hit.data(RESTART).decode().split())
        try:
            entry = _unpickle(hit.data(ENTRY))
        except Unsupported as error:
            raise LoadRefused(error.reason) from None
        symints = compat.backed_symints(self.inputs)
        shape_env = compat.shape_env_of(self.inputs)
        if entry.guards_expr:
            if shape_env is None:
                raise LoadRefused("the entry has guards, but nothing here is symbolic")
            if not compat.guards_hold(shape_env, entry.guards_expr, symints):
                return OtherGuards(entry.guards_expr)
        for index, code in enumerate(_codes(entry)):
            code.attach(graphs.from_hit(hit, f"{index}."))
        function = compat.restore_entry(entry, self.inputs)
        disabled: Callable[..., Any] = torch._dynamo.disable(
            lambda *arguments: function(list(arguments)), reason="do not trace AOT-compiled graph"
        )
        return disabled


def _codes(entry: Any) -> list[Any]:
    """The compiled graphs of an entry, forward first."""
    compiled = [entry.compiled_fw, entry.compiled_bw]
    return [one.result for one in compiled if one is not None]


_ALLOWED_MODULES = ("torch", "neuroncache", "collections", "sympy", "_codecs", "copyreg")
_ALLOWED_BUILTINS = frozenset(
    "set frozenset list dict tuple int float complex bool bytes bytearray str slice range object type".split()
)


class _Unpickler(pickle.Unpickler):
    """Takes objects of torch and of this package only: a user's classes cannot be told apart by the key."""

    def find_class(self, module: str, name: str) -> Any:
        root = module.partition(".")[0]
        if root in _ALLOWED_MODULES or (module == "builtins" and name in _ALLOWED_BUILTINS):
            return super().find_class(module, name)
        raise Unsupported(f"AOTAutograd's result holds a {module}.{name}")


def _unpickle(data: bytes) -> Any:
    return _Unpickler(io.BytesIO(data)).load()
