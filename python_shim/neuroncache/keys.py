"""What an artifact depends on: the parts of its action, each with the reason why it is there.

Everything that can change a result is in the table below, or the graph is refused. Parts are narrowed only with evidence,
here and nowhere else. What is left out on purpose:

- file and variable names, source lines, the model's weights (inputs), sizes that symbols stand for: no part of the code;
- the C++ compiler's version: a host without a compiler must find what a host with one built. The compiler that is
  configured (`CXX`, `cpp.cxx`) is a part as a setting, the one that ran is noted in the manifest, and every artifact was
  run and compared before it was stored;
- logging, tracing, cache and worker settings of torch (`_IGNORED_SETTINGS`): they change how code is made, not the code.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from neuroncache import canonical, compat, cpu
from neuroncache.client import action_key as action_key
from neuroncache.errors import Unsupported

# Version of everything we make ourselves: the wrapper's form, the library's entries, the entry's pickle. Raise it when
# what is stored under an equal key could differ.
FORMAT = "1"

Parts = list[tuple[str, str]]

# Settings of torch._inductor.config that have no influence on the code of a CPU graph (names and prefixes).
_IGNORED_SETTINGS = (
    "TYPE_CHECKING",
    "_cache_config",
    "_profile_var",
    "_save_config_ignore",
    "autotune_local_cache",
    "autotune_remote_cache",
    "bundle_triton_into_fx_graph_cache",
    "bundled_autotune_remote_cache",
    "compile_threads",
    "compile_worker_wait_timeout",
    "cpp_cache_precompile_headers",
    "cuda.",
    "cutlass.",
    "developer_warnings",
    "disable_progress",
    "file_lock_timeout",
    "force_disable_caches",
    "fx_graph_cache",
    "fx_graph_remote_cache",
    "global_cache_dir",
    "halide.",
    "is_nightly_or_source",
    "log_tlparse",
    "non_blocking_remote_cache_write",
    "precompilation_timeout_seconds",
    "quiesce_async_compile",
    "remote_gemm_autotune_cache",
    "rocm.",
    "torchinductor_worker_logpath",
    "trace.",
    "triton.",
    "verbose_progress",
    "worker_",
    "xpu.",
)
# Of torch._functorch.config: what we set ourselves for the length of a compilation, and cache switches.
_IGNORED_FUNCTORCH = (
    "TYPE_CHECKING",
    "_save_config_ignore",
    "autograd_cache_normalize_inputs",
    "bundled_autograd_cache",
    "bypass_autograd_cache_key",
    "enable_autograd_cache",
    "enable_remote_autograd_cache",
    "force_autograd_cache",
    "force_non_lazy_backward_lowering",
    "memory_budget_pareto_dir",
    "strict_autograd_cache",
    "torch_compile_graph_format",
    "unlift_effect_tokens",
    "visualize_memory_budget_pareto",
)
_NARROW_DTYPES = ("float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Request:
    """What is to be keyed: a graph, for which use, with which CPU class."""

    kind: str  # "graph" | "aot"
    graph: canonical.Graph
    cpu_class: cpu.CpuClass
    details: str = ""  # what else of the call decides the result, as canonical text


@dataclass(frozen=True)
class Part:
    name: str
    reason: str
    value: Callable[[Request], str]
    kinds: tuple[str, ...] = ("graph", "aot")


TABLE: tuple[Part, ...] = (
    Part("format", "what we write under one key must be readable by whoever reads it", lambda r: FORMAT),
    Part(
        "graph", "the computation: operators, constants, literals, dtypes, strides, flags", lambda r: _digest(r.graph)
    ),
    Part(
        "details", "use of the graph (role, static inputs) or facts of its inputs (aliases, views)", lambda r: r.details
    ),
    Part("torch", "wrapper, lowering, kernels and headers are those of one build of torch", lambda r: torch_build()),
    Part(
        "python", "marshalled code and the library's entries are those of one interpreter ABI", lambda r: python_abi()
    ),
    Part("platform", "machine code", lambda r: f"{sys.platform}-{platform.machine()}"),
    Part("cpu.class", "instructions and vector width, so sums are grouped the same", lambda r: r.cpu_class.name),
    Part(
        "cpu.narrow_types",
        "torch rewrites graphs with narrow types by what oneDNN can do on this CPU",
        lambda r: _narrow_types(r.graph),
    ),
    Part("threads", "loops are cut for a number of threads, sums are grouped by it", lambda r: _threads()),
    Part("config.inductor", "settings, options and mode of inductor", lambda r: _inductor_config()),
    Part(
        "config.inductor.set", "the same, those that differ from the default, to be read", lambda r: _inductor_changed()
    ),
    Part("config.functorch", "partitioning, recomputation, decompositions", lambda r: _functorch_config()),
    Part(
        "config.symbolic", "which guards are made, which dimensions are unified", lambda r: _symbolic_config(), ("aot",)
    ),
    Part("determinism", "deterministic algorithms choose other operators", lambda r: _determinism()),
    Part("precision", "matmul precision, default dtype, denormals", lambda r: _precision()),
    Part("backends", "which attention and oneDNN paths the trace takes", lambda r: _backends()),
    Part("autocast", "casts are traced in", lambda r: _autocast()),
    Part("grad", "grad and inference mode decide whether there is a backward", lambda r: _grad_mode()),
)


def parts_of(request: Request) -> Parts:
    """The action parts of a request, sorted by name. Raises `Unsupported` when something here cannot be keyed."""
    check_environment()
    return sorted((part.name, part.value(request)) for part in TABLE if request.kind in part.kinds)


def canonical_details(**values: Any) -> str:
    """Facts as text: short ones as they are, long ones by their digest."""
    return _short(json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False))


def _digest(graph: canonical.Graph) -> str:
    return f"sha256:{graph.digest}"


def _short(text: str) -> str:
    return text if len(text) <= 1024 else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


# -- builds -----------------------------------------------------------------------------------------------------------

_torch_build: str | None = None


def torch_build() -> str:
    """Version, commit and a digest of the files of the installed torch."""
    global _torch_build
    if _torch_build is None:
        version = torch.version
        _torch_build = f"{torch.__version__} {version.git_version} {_wheel_digest()}"
    return _torch_build


def _wheel_digest() -> str:
    """SHA-256 over what pip recorded of the wheel's files, when they are still as pip installed them.

    pip's record holds a digest of every file. The lines that pip itself adds (scripts with a path in them, byte code) are
    left out, so that one wheel has one digest in every venv. An edited or uninstalled torch falls back to torch's own
    digest of its sources, which takes some 100 ms.
    """
    package = os.path.dirname(os.path.abspath(torch.__file__))
    record = os.path.join(os.path.dirname(package), f"torch-{torch.__version__}.dist-info", "RECORD")
    try:
        with open(record, "rb") as file:
            lines = file.read().splitlines()
        installed = os.stat(record).st_mtime
    except OSError:
        return _source_digest()
    kept = [line for line in lines if line.startswith(b"torch/") and b",sha256=" in line and b".pyc," not in line]
    if not kept or _edited(package, installed):
        return _source_digest()
    return hashlib.sha256(b"\n".join(sorted(kept))).hexdigest()[:32]


def _edited(package: str, installed: float) -> bool:
    """Whether a source file that takes part in compiling was changed after the installation."""
    for folder in (
        "_inductor",
        "_inductor/codegen",
        "_inductor/fx_passes",
        "_functorch",
        "_functorch/_aot_autograd",
        "_decomp",
    ):
        try:
            entries = list(os.scandir(os.path.join(package, folder)))
        except OSError:
            return True
        if any(entry.name.endswith(".py") and entry.stat().st_mtime > installed + 60 for entry in entries):
            return True
    return False


def _source_digest() -> str:
    return "source-" + compat.torch_source_key().hex()[:32]


def python_abi() -> str:
    """The extension ABI and the version of byte code."""
    magic = importlib.util.MAGIC_NUMBER.hex()
    return f"{sys.implementation.cache_tag} {sysconfig.get_config_var('SOABI')} {magic}"


# -- settings ---------------------------------------------------------------------------------------------------------


def _settings(module: Any, ignored: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = module.get_config_copy()
    return {name: values[name] for name in sorted(values) if not name.startswith(ignored)}


def _plain(name: str, value: Any) -> Any:
    """A setting's value as JSON. Raises `Unsupported` for objects that cannot be compared across processes."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    if isinstance(value, (set, frozenset)):
        return ["set", *sorted(json.dumps(_plain(name, item)) for item in value)]
    if isinstance(value, dict):
        return ["dict", *sorted([str(key), _plain(name, item)] for key, item in value.items())]
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    if isinstance(value, type) and value.__module__.startswith("torch."):
        return f"{value.__module__}.{value.__qualname__}"
    uuid = getattr(value, "uuid", None)
    identity = uuid() if callable(uuid) else None
    if identity:
        return ["uuid", type(value).__qualname__, identity.hex() if isinstance(identity, bytes) else str(identity)]
    raise Unsupported(f"the setting '{name}' holds a {type(value).__name__} without an identity (uuid())")


def _config_text(module: Any, ignored: tuple[str, ...]) -> str:
    values = {name: _plain(name, value) for name, value in _settings(module, ignored).items()}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _inductor_config() -> str:
    return _sha(_config_text(compat.inductor_config(), _IGNORED_SETTINGS))


def _inductor_changed() -> str:
    changed = compat.changed_settings(compat.inductor_config())
    values = {name: _plain(name, value) for name, value in changed.items() if not name.startswith(_IGNORED_SETTINGS)}
    return _short(json.dumps(values, sort_keys=True, separators=(",", ":")))


def _functorch_config() -> str:
    return _sha(_config_text(compat.functorch_config(), _IGNORED_FUNCTORCH))


def _symbolic_config() -> str:
    return _sha(_config_text(compat.symbolic_config(), ("TYPE_CHECKING",)))


def _sha(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


# -- state of the process ---------------------------------------------------------------------------------------------


def _threads() -> str:
    settings = compat.inductor_config()
    dynamic = getattr(settings, "cpp.dynamic_threads")
    fixed = getattr(settings, "cpp.threads")
    return "dynamic" if dynamic else str(fixed if fixed > 0 else torch.get_num_threads())


def _determinism() -> str:
    from torch.utils import deterministic

    return _flags(
        algorithms=torch.are_deterministic_algorithms_enabled(),
        warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        fill=deterministic.fill_uninitialized_memory,
    )


def _precision() -> str:
    return _flags(
        matmul=torch.get_float32_matmul_precision(),
        default=str(torch.get_default_dtype()).removeprefix("torch."),
        reduced=[torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction],
        onednn=[
            getattr(getattr(torch.backends.mkldnn, name, None), "fp32_precision", None)
            for name in ("matmul", "conv", "rnn")
        ],
    )


def _backends() -> str:
    attention = torch.backends.cuda
    return _flags(
        flash=attention.flash_sdp_enabled(),
        efficient=attention.mem_efficient_sdp_enabled(),
        math=attention.math_sdp_enabled(),
        math_reduced=attention.fp16_bf16_reduction_math_sdp_allowed(),
        onednn=torch.backends.mkldnn.enabled,
        onednn_there=torch.backends.mkldnn.is_available(),
        onednn_deterministic=torch.backends.mkldnn.deterministic,
        mkl=torch.backends.mkl.is_available(),
        nnpack=torch.backends.nnpack.is_available(),
    )


def _narrow_types(graph: canonical.Graph) -> str:
    if not graph.uses_dtype(_NARROW_DTYPES):
        return "unused"
    return _flags(**compat.onednn_types())


def _autocast() -> str:
    states = []
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            states.append(f"{device}:{str(torch.get_autocast_dtype(device)).removeprefix('torch.')}")
    if states and torch.is_autocast_cache_enabled():
        states.append("cache")
    return " ".join(states) or "off"


def _grad_mode() -> str:
    return (
        f"{'grad' if torch.is_grad_enabled() else 'no_grad'}{' inference' if torch.is_inference_mode_enabled() else ''}"
    )


def _flags(**values: Any) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def process_state() -> Parts:
    """The parts that are state of this process, whatever the graph: equal in two processes that build the same artifacts."""
    own = (
        "torch",
        "python",
        "threads",
        "config.inductor",
        "config.functorch",
        "determinism",
        "precision",
        "backends",
        "autocast",
    )
    none: Any = None  # none of these looks at the request
    return sorted((part.name, part.value(none)) for part in TABLE if part.name in own)


# -- what cannot be keyed ---------------------------------------------------------------------------------------------


def check_environment() -> None:
    """Raises `Unsupported` when something that takes part in compiling is not torch's own and has no identity."""
    for what, functions in compat.registrations():
        foreign = _first_foreign(functions)
        if foreign:
            raise Unsupported(f"{what} is replaced by {foreign}")


_known_own: set[int] = set()


def _first_foreign(functions: Iterable[Any]) -> str | None:
    for function in functions:
        if id(function) in _known_own:
            continue
        module = getattr(function, "__module__", None) or "torch."
        if module != "torch" and not module.startswith(
            ("torch.", "torchgen.", "functools", "_operator", "math", "builtins")
        ):
            return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"
        _known_own.add(id(function))
    return None


# -- inputs of a captured graph ---------------------------------------------------------------------------------------


def input_facts(inputs: Sequence[Any]) -> list[Any]:
    """What AOTAutograd looks at in the inputs beyond their types: leaves, views, aliases and the like.

    Raises `Unsupported` for tensor subclasses and anything else whose inside the facts do not show.
    """
    storages: dict[int, int] = {}
    shared: dict[int, int] = {}
    facts: list[Any] = []
    for value in inputs:
        if isinstance(value, (torch.SymInt, torch.SymFloat)) or type(value) in (int, float, bool):
            facts.append(type(value).__name__)
            continue
        if value is None:
            facts.append(None)
            continue
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"an input is a {type(value).__name__}")
        if type(value) not in (torch.Tensor, torch.nn.Parameter, *compat.plain_tensor_types()):
            raise Unsupported(f"an input is a {type(value).__module__}.{type(value).__qualname__}")
        if value.device.type != "cpu" or value.layout is not torch.strided:
            raise Unsupported(f"an input is on {value.device.type} with layout {value.layout}")
        if value.is_quantized or compat.is_functorch_wrapped(value):
            raise Unsupported("an input is quantized or wrapped by a transform")
        storage = compat.storage_identity(value)
        index = storages.setdefault(storage, len(storages))
        shared[index] = shared.get(index, 0) + 1
        offset = value.storage_offset()
        facts.append(
            [
                "parameter" if isinstance(value, torch.nn.Parameter) else "tensor",
                value.requires_grad,
                value.is_leaf,
                value._is_view(),
                value.is_conj(),
                value.is_neg(),
                value.is_inference(),
                offset if type(offset) is int else "symbolic",
                index,
            ]
        )
    if any(count > 1 for count in shared.values()) and any(
        isinstance(fact, list) and fact[7] == "symbolic" for fact in facts
    ):
        raise Unsupported("inputs share memory at places that depend on sizes")
    return facts
