"""Every name that is private to torch and used here, in one place, with the checks that they are what we take them for.

`missing()` is asked once before the first graph: a torch without one of the names is left alone, never half used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch


def inductor_config() -> Any:
    import torch._inductor.config

    return torch._inductor.config


def functorch_config() -> Any:
    import torch._functorch.config

    return torch._functorch.config


def changed_settings(module: Any) -> dict[str, Any]:
    """The settings of a configuration module of torch that are not what they are by default."""
    known = module._config
    return {
        name: value
        for name, value in module.get_config_copy().items()
        if name in known and value is not known[name].default and value != known[name].default
    }


def symbolic_config() -> Any:
    import torch.fx.experimental._config

    return torch.fx.experimental._config


def torch_source_key() -> bytes:
    """Torch's own digest of its Python sources."""
    from torch._inductor.codecache import torch_key

    key: bytes = torch_key()
    return key


def onednn_types() -> dict[str, bool]:
    """Which narrow types oneDNN supports on this CPU; torch's passes ask the same."""
    ops = torch.ops.mkldnn
    result: dict[str, bool] = {}
    for name in ("_is_mkldnn_bf16_supported", "_is_mkldnn_fp16_supported", "_is_mkldnn_acl_supported"):
        function = getattr(ops, name, None)
        result[name] = bool(function()) if function is not None else False
    for name in ("_is_vnni_supported", "_is_amx_tile_supported", "_is_avx512_bf16_supported", "_is_amx_fp16_supported"):
        function = getattr(torch.cpu, name, None)
        result[name] = bool(function()) if function is not None else False
    return result


def plain_tensor_types() -> tuple[type, ...]:
    """Classes of tensors that are plain tensors for AOTAutograd."""
    from torch._subclasses.fake_tensor import FakeTensor

    return (FakeTensor, torch.nn.Buffer) if isinstance(getattr(torch.nn, "Buffer", None), type) else (FakeTensor,)


def is_functorch_wrapped(value: torch.Tensor) -> bool:
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(value))


def storage_identity(value: torch.Tensor) -> int:
    return int(value.untyped_storage()._cdata)


def transforms_active() -> str | None:
    """What wraps the call from outside and would have to be part of the key; None when nothing does."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a functorch transform is active"
    if torch._C._autograd._saved_tensors_hooks_is_enabled() and torch._C._autograd._top_saved_tensors_default_hooks(
        False
    ):
        return "saved-tensor hooks are active"
    if torch._C._len_torch_dispatch_stack() > 0:
        return "a dispatch mode is active"
    return None


def no_modes() -> contextlib.AbstractContextManager[Any]:
    """For the length of the block, tensors are computed for real."""
    from torch.utils._python_dispatch import _disable_current_modes

    manager: contextlib.AbstractContextManager[Any] = _disable_current_modes()
    return manager


def registrations() -> Iterator[tuple[str, Sequence[Any]]]:
    """Tables through which a user's code can change what inductor makes; only of modules that are imported already."""
    decomposition = sys.modules.get("torch._inductor.decomposition")
    if decomposition is not None:
        yield "a decomposition of inductor", list(decomposition.decompositions.values())
    lowering = sys.modules.get("torch._inductor.lowering")
    if lowering is not None:
        yield "a lowering of inductor", list(lowering.lowerings.values())
    core = sys.modules.get("torch._decomp")
    if core is not None:
        yield "a decomposition", list(core.global_decomposition_table["post_autograd"].values())


# -- shape environment ------------------------------------------------------------------------------------------------


def backed_symints(inputs: Sequence[Any]) -> list[Any]:
    """The symbolic sizes among inputs that have a value, in order."""
    from torch.fx.experimental.symbolic_shapes import has_guarding_hint

    return [value for value in inputs if isinstance(value, torch.SymInt) and has_guarding_hint(value)]


def shape_env_of(inputs: Sequence[Any]) -> Any:
    """The shape environment of the graph that is being compiled, or None for one without symbols."""
    for value in inputs:
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return value.node.shape_env
    context = torch._guards.TracingContext.try_get()
    fake_mode = getattr(context, "fake_mode", None)
    return getattr(fake_mode, "shape_env", None)


def guards_expression(shape_env: Any, symints: Sequence[Any]) -> str | None:
    """The guards on `symints` so far, as text that `evaluate_guards` takes in any process."""
    if shape_env is None or not symints:
        return None
    guards = shape_env.get_pruned_guards(symints)
    text: str | None = shape_env.produce_guards_expression(placeholders=symints, guards=guards)
    return text


def guards_hold(shape_env: Any, expression: str | None, symints: Sequence[Any]) -> bool:
    """Whether the guards hold for the sizes at hand. Adds nothing to the environment."""
    if not expression:
        return True
    from torch.fx.experimental.symbolic_shapes import guarding_hint_or_throw

    hints = [guarding_hint_or_throw(value) for value in symints]
    return bool(shape_env.evaluate_guards_expression(expression, hints))


def install_guards(shape_env: Any, expression: str | None, symints: Sequence[Any]) -> bool:
    """Evaluates the guards on the symbols themselves, so that Dynamo guards its entry by them, too."""
    return not expression or bool(shape_env.evaluate_guards_expression(expression, list(symints)))


# -- AOTAutograd ------------------------------------------------------------------------------------------------------

_AOT_CACHE = "torch._functorch._aot_autograd.autograd_cache"


@contextlib.contextmanager
def captured_entry(key: str, save: Callable[[Any], None]) -> Iterator[None]:
    """For the length of the block, AOTAutograd's cache has nothing, and gives `save` what it would have stored.

    Runs under Dynamo's compile lock, so no other compilation sees this.
    """
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache
    from torch._functorch._aot_autograd.schemas import AOTAutogradCacheInfo

    def try_load(
        mod: Any, args: Any, aot_config: Any, compiler_config_extra: Any, local: bool, remote: bool, **others: Any
    ) -> tuple[None, Any]:
        info = AOTAutogradCacheInfo(key, time.time_ns(), forward_symints=backed_symints(args))
        return None, dataclasses.replace(aot_config, cache_info=info)

    def save_entry(key: str, entry: Any, remote: bool) -> None:
        save(entry)

    saved = {name: AOTAutogradCache.__dict__[name] for name in ("try_load", "save")}
    AOTAutogradCache.try_load = staticmethod(try_load)
    AOTAutogradCache.save = staticmethod(save_entry)
    try:
        with functorch_config().patch(
            bundled_autograd_cache=True,
            enable_autograd_cache=True,
            force_non_lazy_backward_lowering=True,
            strict_autograd_cache=False,
        ):
            yield
    finally:
        for name, value in saved.items():
            setattr(AOTAutogradCache, name, value)


def run_aot_autograd(
    gm: Any,
    inputs: Sequence[Any],
    *,
    forward_compiler: Callable[[Any, Any], Any],
    backward_compiler: Callable[[Any, Any], Any],
    inference_compiler: Callable[[Any, Any], Any],
    partition: Callable[..., Any],
    decompositions: dict[Any, Any],
) -> Callable[..., Any]:
    """AOTAutograd for a graph of Dynamo, with compilers of our own; the backward graph is made at once."""
    from torch._functorch.aot_autograd import aot_module_simplified

    with functorch_config().patch(
        force_non_lazy_backward_lowering=True, donated_buffer=False, enable_autograd_cache=False
    ):
        function = aot_module_simplified(
            gm,
            inputs,
            fw_compiler=forward_compiler,
            bw_compiler=lambda graph, values: torch._dynamo.disable(
                backward_compiler(graph, values), reason="do not trace generated backwards pass"
            ),
            inference_compiler=inference_compiler,
            partition_fn=partition,
            decompositions=decompositions,
            keep_inference_input_mutations=False,
        )
    disabled: Callable[..., Any] = torch._dynamo.disable(function, reason="do not trace AOT-compiled graph")
    return disabled


def compile_lock() -> Any:
    """Dynamo's lock around every compilation."""
    from torch._dynamo import convert_frame

    return convert_frame.compile_lock


@contextlib.contextmanager
def no_tracing() -> Iterator[None]:
    """For the length of the block, nothing of a compilation that is going on around it is seen."""
    with torch._guards.tracing(None), no_modes():
        yield


@contextlib.contextmanager
def static_trace(inputs: Sequence[torch.Tensor], *, keep_grad: bool = False) -> Iterator[list[Any]]:
    """For the length of the block, a tracing context and fake mode of their own; gives fakes of the inputs, without symbols."""
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(value if keep_grad else value.detach(), static_shapes=True) for value in inputs]
    context = torch._guards.TracingContext(mode)
    with torch._guards.tracing(context), V.set_fake_mode(mode), torch.set_grad_enabled(keep_grad):
        yield fakes


def retrace(gm: Any, fakes: Sequence[Any], decompositions: dict[Any, Any]) -> Any:
    """The graph with its operators decomposed, for fakes of `static_trace`."""
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = fakes[0].fake_mode if fakes else torch._guards.detect_fake_mode([])
    with mode:
        return make_fx(gm, decomposition_table=decompositions)(*fakes)


def propagate_fakes(gm: Any, inputs: Sequence[torch.Tensor], *, keep_grad: bool = False) -> None:
    """Writes types of fixed sizes into the nodes, as Dynamo and AOTAutograd do."""
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    with static_trace(inputs, keep_grad=keep_grad) as fakes:
        mode = torch._guards.detect_fake_mode(fakes)
        if mode is not None:
            FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*fakes)
    for node in gm.graph.nodes:
        node.meta["example_value"] = node.meta.get("val")


def guards_of(shape_env: Any) -> list[Any]:
    """What the trace so far has asked of the sizes, as expressions that are true."""
    return [shape_env.replace(guard.expr) for guard in shape_env.guards]


def known_sizes(shape_env: Any) -> list[tuple[Any, int]]:
    """Expressions that the trace so far has fixed to a number, as a loop over chunks fixes how many there are."""
    import sympy

    known = []
    for guard in guards_of(shape_env):
        if not isinstance(guard, sympy.Eq):
            continue
        number, expression = sorted(guard.args, key=lambda side: not side.is_Integer)
        if number.is_Integer and expression.free_symbols and not expression.is_Symbol:
            known.append((expression, int(number)))
    return known


def source_name(node: Any) -> str | None:
    """The place among a frame's inputs that a placeholder of Dynamo's graph stands for."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    return None if source is None else str(source.name)


def compiled_autograd_active() -> bool:
    from torch._dynamo import compiled_autograd, config

    return bool(compiled_autograd.compiled_autograd_enabled or config.compiled_autograd)


def synchronize(device: torch.device) -> None:
    """Waits until a device has done what it was given; a CPU has."""
    if device.type != "cpu" and torch.accelerator.is_available():
        torch.accelerator.synchronize(device)


def run_frame_as_it_is() -> Any:
    """What Dynamo's compilation of a frame returns for a call that is to run as plain Python, this time only."""
    from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy

    # With fullgraph, Dynamo counts the frames that run compiled, and takes none for an error: this one is as it should be.
    set_count = getattr(torch._C._dynamo.eval_frame, "set_fullgraph_compiled_frame_count", None)
    if set_count is not None:
        count = set_count(-1)
        set_count(count + 1 if count >= 0 else count)
    return ConvertFrameReturn(
        frame_exec_strategy=FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP), apply_to_code=False
    )


def symbol_sources(shape_env: Any, symbol: Any) -> list[str]:
    """Names of the places of a frame's inputs that a symbol stands for."""
    return [source.name for source in shape_env.var_to_sources.get(symbol, ())]


def min_cut_partition(joint: Any, inputs: Sequence[Any], **keywords: Any) -> tuple[Any, Any]:
    from torch._functorch import partitioners

    # Attention without dropout is tagged as random. Where a checkpoint computes it again, torch would save and restore a random
    # state that nothing draws from, by operators of higher order that no static compiler knows.
    original = partitioners.has_recomputable_rng_ops

    def draws(gm: Any) -> bool:
        return bool(original(gm)) and any(_draws_again(node, partitioners.must_recompute) for node in gm.graph.nodes)

    # Dynamo's compile lock keeps other compilations from seeing this.
    partitioners.has_recomputable_rng_ops = draws
    try:
        forward, backward = partitioners.min_cut_rematerialization_partition(joint, inputs, **keywords)
    finally:
        partitioners.has_recomputable_rng_ops = original
    return forward, backward


def _draws_again(node: Any, computed_again: Callable[[Any], bool]) -> bool:
    """Whether a node of a joint graph draws random numbers and is computed once more for the backward graph."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()) or not computed_again(node):
        return False
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.name == "dropout_p":
            given = node.args[index] if index < len(node.args) else node.kwargs.get("dropout_p", argument.default_value)
            return bool(given != 0)
    return True


def joint_graph_passes(gm: Any) -> Any:
    """Inductor's passes on a graph before it is cut into forward and backward, but for those that draw random numbers another way."""
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes as passes

    settings = inductor_config()
    if not settings.use_joint_graph_passes:
        return gm
    with settings.patch(fallback_random=True):
        return passes(gm)


def alias_outputs() -> frozenset[int]:
    """Which outputs of the forward graph at hand AOTAutograd turns into views of another tensor."""
    from torch._functorch._aot_autograd.schemas import OutputType

    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    if metadata is None:
        return frozenset()
    plain = (OutputType.non_alias, OutputType.unsafe_view_alias, OutputType.custom_function_view)
    first = metadata.num_mutated_inp_runtime_indices
    return frozenset(first + index for index, info in enumerate(metadata.output_info) if info.output_type not in plain)


def mutated_inputs() -> int:
    """How many inputs of the graph at hand are changed in place."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    return (
        0 if metadata is None else sum(bool(info.mutates_data or info.mutates_metadata) for info in metadata.input_info)
    )


def no_autocast() -> contextlib.AbstractContextManager[Any]:
    """For the length of the block, no operator changes types by itself: a graph says them all."""
    manager: contextlib.AbstractContextManager[Any] = torch._C._DisableAutocast()
    return manager


def core_decompositions() -> dict[Any, Any]:
    """Core ATen, without the entry for SDPA on a CPU: its second result is not what the backward operator expects."""
    from torch._decomp import core_aten_decompositions

    table = dict(core_aten_decompositions())
    table.pop(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default, None)
    return table


def inductor_decompositions() -> dict[Any, Any]:
    from torch._inductor.decomposition import select_decomp_table

    return dict(select_decomp_table())


def restore_entry(entry: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """A stored result of AOTAutograd as a callable that takes a list of the graph's inputs."""
    from torch._functorch._aot_autograd.autograd_cache import create_fx_config

    function: Callable[[list[Any]], Any] = entry.wrap_post_compile(
        list(inputs), entry.sanitized_aot_config, create_fx_config()
    )
    return function


def aot_guards_count() -> int:
    """How many guards on input identity AOTAutograd has added so far; they are not part of what it stores."""
    context = torch._guards.TracingContext.try_get()
    return len(context.guards_context.aotautograd_guards) if context is not None else 0


def fakified_first_call() -> bool:
    context = torch._guards.TracingContext.try_get()
    return bool(context is not None and context.fakify_first_call)


def report_output_strides(strides: Sequence[Sequence[int] | None] | None) -> None:
    """Tells AOTAutograd the strides that the forward graph's outputs really have, as inductor does."""
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.output_strides is not None and strides is not None:
        context.output_strides.extend(None if one is None else tuple(one) for one in strides)


def user_outputs(gm: Any) -> list[int]:
    (output,) = (node for node in gm.graph.nodes if node.op == "output")
    return list(output.meta.get("user_visible_output_idxs", ()))


def output_count(gm: Any) -> int:
    (output,) = (node for node in gm.graph.nodes if node.op == "output")
    return len(output.args[0])


# -- floats that turn out to be part of the shapes --------------------------------------------------------------------


def specialized_floats() -> set[str]:
    """Names of the float symbols that Dynamo was asked to make constants, at its next attempt."""
    from torch._dynamo.symbolic_convert import TensorifyState

    return set(TensorifyState.force_specializations)


def restart_with(names: Sequence[str]) -> Exception:
    """The exception that makes Dynamo trace again with these float symbols as constants."""
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis
    from torch._dynamo.symbolic_convert import TensorifyState

    for name in names:
        TensorifyState.specialize(name)
    restart: Exception = TensorifyScalarRestartAnalysis()
    return restart


def is_restart(error: BaseException) -> bool:
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis

    return isinstance(error, TensorifyScalarRestartAnalysis)


# -- kernels ----------------------------------------------------------------------------------------------------------


def tensor_data_pointer_function() -> int:
    """Address of torch's C function that gives a tensor object's data pointer, for the entries of our libraries."""
    return int(torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr)


def output_code_base() -> type:
    from torch._inductor.output_code import OutputCode

    base: type = OutputCode
    return base


# -- probe ------------------------------------------------------------------------------------------------------------

_checked = False
_missing: str | None = None


def missing() -> str | None:
    """The first name that this torch lacks, or None. Asked once, costs a few microseconds then."""
    global _checked, _missing
    if not _checked:
        _checked = True
        _missing = _probe()
    return _missing


def _probe() -> str | None:
    needed: list[tuple[str, str]] = [
        ("torch._C._dynamo.guards", "_torchinductor_pyobject_tensor_data_ptr"),
        ("torch._C._dynamo.guards", "assert_size_stride"),
        ("torch._C._dynamo.guards", "_empty_strided_cpu"),
        ("torch._C._dynamo.guards", "_reinterpret_tensor"),
        ("torch._inductor.config", "_config"),
        ("torch._functorch.config", "force_non_lazy_backward_lowering"),
        ("torch._inductor.output_code", "OutputCode"),
        ("torch._functorch.partitioners", "has_recomputable_rng_ops"),
        ("torch._functorch.partitioners", "must_recompute"),
        ("torch._dynamo.symbolic_convert", "TensorifyState"),
        (_AOT_CACHE, "AOTAutogradCache"),
        (_AOT_CACHE, "create_fx_config"),
        ("torch._functorch._aot_autograd.schemas", "AOTAutogradCacheInfo"),
        ("torch._functorch._aot_autograd.aot_autograd_result", "BundledAOTAutogradResult"),
    ]
    import importlib

    for module_name, attribute in needed:
        try:
            module: Any = sys.modules.get(module_name) or importlib.import_module(module_name)
        except ImportError:
            parent, _, last = module_name.rpartition(".")
            module = getattr(sys.modules.get(parent), last, None)
        if not hasattr(module, attribute):
            return f"{module_name}.{attribute}"
    return None
