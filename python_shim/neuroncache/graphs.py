"""One functional graph (forward, backward or inference) to a callable: from the store, or made here and then stored."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

from neuroncache import admit, canonical, compat, cpu, expr, keys, library, loader, wrapper
from neuroncache.cache import Built, Cache, Hit
from neuroncache.errors import LoadRefused, Unsupported
from neuroncache.loader import LoadedGraph

# Names of an artifact's outputs.
WRAPPER = "wrapper"
LIBRARY = "library"
CONSTANTS = "constants"

MAX_VARIANTS = 8  # artifacts of one symbolic graph that differ in the guards they were made under


class Artifact:
    """A graph that is loaded, with the parts it was loaded from, so that they can be stored once more."""

    def __init__(self, key: str, graph: LoadedGraph, parts: dict[str, bytes]) -> None:
        self.key = key
        self.graph = graph
        self.parts = parts


class _OtherGuards:
    """What a stored artifact needs of the sizes does not hold here."""

    def __init__(self, guards: str) -> None:
        self.guards = guards


def compile_functional(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    keywords: dict[str, Any],
    *,
    cache: Cache,
    cpu_class: cpu.CpuClass,
    refused: Callable[[str, bool], None],
) -> Artifact | Any:
    """An `Artifact`, or what stock inductor made where the graph cannot be one (`refused` is told why)."""
    from neuroncache import inductor

    role = _role(keywords)
    try:
        request = _request(gm, example_inputs, keywords, role, cpu_class)
        parts = keys.parts_of(request)
    except Unsupported as error:
        refused(f"{role}: {error.op + ': ' if error.op else ''}{error.reason}", error.passing)
        return inductor.stock(gm, example_inputs, keywords)
    maker = _Maker(gm, example_inputs, keywords, role, cpu_class, request.graph)
    compiler = f"inductor {torch.__version__}"
    for _ in range(MAX_VARIANTS):
        maker.key = keys.action_key(parts)
        result = cache.obtain(
            "graph", parts, label=_label(role, request.graph), compiler=compiler, build=maker.build, load=maker.load
        )
        if not isinstance(result, _OtherGuards):
            break
        # Another process made this graph under guards that do not hold for the sizes here: look for the next one.
        parts = sorted([*parts, (f"without.{len(parts)}", keys.canonical_details(guards=result.guards))])
    else:
        refused(f"{role}: {MAX_VARIANTS} artifacts exist for other sizes", False)
        return inductor.stock(gm, example_inputs, keywords)
    if maker.refusal is not None:
        refused(f"{role}: {maker.refusal}", maker.refusal_passes)
    return result


def from_hit(hit: Hit, prefix: str = "") -> LoadedGraph:
    """A graph from the outputs of a stored artifact whose names start with `prefix`."""
    names = {entry["name"] for entry in hit.manifest["outputs"]}
    data = hit.data(prefix + WRAPPER)
    path = hit.path(prefix + LIBRARY) if prefix + LIBRARY in names else None
    constants = hit.data(prefix + CONSTANTS) if prefix + CONSTANTS in names else None
    return loader.load(data, path, constants)


def _role(keywords: dict[str, Any]) -> str:
    if keywords.get("is_backward"):
        return "backward"
    return "inference" if keywords.get("is_inference") else "forward"


def _label(role: str, graph: canonical.Graph) -> str:
    return f"{role} {len(graph.document['nodes'])} nodes"


def _request(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], keywords: dict[str, Any], role: str, cpu_class: cpu.CpuClass
) -> keys.Request:
    for name in ("cpp_wrapper", "fx_wrapper", "layout_opt", "extern_node_serializer"):
        if keywords.get(name):
            raise Unsupported(f"inductor is called with {name}")
    visible = compat.user_outputs(gm)
    outputs = compat.output_count(gm)
    kinds = ["user" if index in visible else "other" for index in range(outputs)]
    graph = canonical.export_functional(gm, inputs, role, kinds)
    static = sorted(set(keywords.get("static_input_idxs") or ()))
    details = keys.canonical_details(role=role, static=static)
    return keys.Request("graph", graph, cpu_class, details)


class _Maker:
    """Builds or loads the artifact of one graph."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        inputs: Sequence[Any],
        keywords: dict[str, Any],
        role: str,
        cpu_class: cpu.CpuClass,
        graph: canonical.Graph,
    ) -> None:
        self.gm = gm
        self.inputs = inputs
        self.keywords = keywords
        self.role = role
        self.cpu_class = cpu_class
        self.graph = graph
        self.random_states = canonical.random_states(gm)
        self.key = ""
        self.refusal: str | None = None
        self.refusal_passes = False

    def load(self, hit: Hit) -> Artifact | _OtherGuards:
        loaded = from_hit(hit)
        shape_env = compat.shape_env_of(self.inputs)
        symints = compat.backed_symints(self.inputs)
        if loaded.guards:
            if shape_env is None:
                raise LoadRefused("the artifact has guards, but nothing here is symbolic")
            if not compat.guards_hold(shape_env, loaded.guards, symints):
                return _OtherGuards(loaded.guards)
            if not compat.install_guards(shape_env, loaded.guards, symints):
                raise LoadRefused("the artifact's guards hold for the sizes but not for the symbols")
        hints = self.graph.symbols.hints()
        strides = loaded.output_strides
        if strides is not None and self.role == "forward":
            compat.report_output_strides(
                [None if one is None else [int(expr.evaluate(step, hints)) for step in one] for one in strides]
            )
        names = [entry["name"] for entry in hit.manifest["outputs"]]
        return Artifact(self.key, loaded, {name: hit.data(name) for name in names})

    def build(self) -> Built[Any]:
        from neuroncache import inductor

        admit.prepare()
        generated = inductor.generate(self.gm, self.inputs, self.keywords)
        try:
            artifact, parts, meta = self._artifact(generated)
        except Unsupported as error:
            self.refusal = error.reason
            self.refusal_passes = error.passing
            return Built(generated.finish(), None, refusal=error.reason, passing=error.passing)
        return Built(Artifact(self.key, artifact, parts), parts, frozenset([LIBRARY]), meta)

    def _artifact(self, generated: Any) -> tuple[LoadedGraph, dict[str, bytes], dict[str, str]]:
        from neuroncache import inductor

        if not generated.source:
            raise Unsupported("inductor gave no source code")
        taken = wrapper.take_apart(generated.source, sorted(generated.constants))
        inductor.check_extern_kernels(taken.externs)
        header = self._header(generated)
        parts: dict[str, bytes] = {}
        if taken.constants:
            values = [
                (name, value, canonical.content_bytes(value)) for name, value in sorted(generated.constants.items())
            ]
            parts[CONSTANTS], header["constant_table"] = loader.pack_constants(values)
        if taken.kernels:
            parts[LIBRARY] = library.compile_library(taken.kernels, self.cpu_class)
        parts[WRAPPER] = wrapper.pack(taken, header)
        with tempfile.TemporaryDirectory(prefix="neuroncache-") as directory:
            paths = {name: _write(directory, name, data) for name, data in parts.items()}
            files = admit.Files(paths[WRAPPER], paths.get(LIBRARY), paths.get(CONSTANTS))
            # This very object is what runs from here on, as it will in every process that finds it.
            loaded = loader.load(parts[WRAPPER], files.library, parts.get(CONSTANTS))
            unordered = any("atomic_add" in kernel.source for kernel in taken.kernels)
            admit.admit(loaded, files, self.inputs, unordered_sums=unordered, random_states=self.random_states)
        meta = {
            "role": self.role,
            "nodes": str(len(self.graph.document["nodes"])),
            "kernels": str(len(taken.kernels)),
            "cxx": inductor.compiler_version() if taken.kernels else "",
            "cpu_class": self.cpu_class.name,
        }
        return loaded, parts, meta

    def _header(self, generated: Any) -> dict[str, Any]:
        symints = compat.backed_symints(self.inputs)
        return {
            "format": keys.FORMAT,
            "role": self.role,
            "torch": keys.torch_build(),
            "python": keys.python_abi(),
            "cpu_class": self.cpu_class.name,
            "outputs": compat.output_count(self.gm),
            "output_strides": self._strides(generated.output_strides),
            "guards": compat.guards_expression(compat.shape_env_of(self.inputs), symints),
        }

    def _strides(self, strides: list[tuple[str, ...] | None] | None) -> list[list[Any] | None] | None:
        """Strides that inductor chose for the outputs, as expressions of the graph's own symbols."""
        if strides is None:
            return None
        shape_env = compat.shape_env_of(self.inputs)
        result: list[list[Any] | None] = []
        for one in strides:
            if one is None:
                result.append(None)
            elif shape_env is None or all(step.isdigit() for step in one):
                result.append([int(step) for step in one])
            else:
                result.append([self.graph.symbols.export(shape_env.deserialize_symexpr(step)) for step in one])
        return result


def _write(directory: str, name: str, data: bytes) -> str:
    path = os.path.join(directory, name)
    with open(path, "wb") as file:
        file.write(data)
    return path
