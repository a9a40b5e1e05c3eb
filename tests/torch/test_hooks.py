"""What is caught, what is left alone, and what it costs. Graphs that are caught run eagerly here: no compiler is needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import SHIM, Programs

# A caught graph is counted and runs as it is; a graph that reaches stock inductor is an error unless a case allows it.
PRELUDE = """
import json, sys, torch, warnings
import neuroncache
from neuroncache import backend, hooks
warnings.simplefilter("ignore")
backend._compile = lambda gm, inputs, options: gm.forward

def caught(action):
    torch._dynamo.reset()
    before = neuroncache.stats()["entries"]
    action()
    return neuroncache.stats()["entries"] - before

def show(value):
    print(json.dumps(value))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory that makes torch load the package as an installation does."""
    directory = tmp_path / "site"
    metadata = directory / "neuroncache-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: neuroncache\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\nneuroncache = neuroncache._autoload:install\n")
    (directory / "neuroncache.pth").write_text("import neuroncache._pth\n")
    return directory


def _env(site: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{site}:{SHIM}"}


def test_ways_to_compile(lone_programs: Programs, site: Path) -> None:
    code = (
        PRELUDE
        + """
from torch import compile as torch_compile, nn
x = torch.randn(3, 4)
def f(x): return x * 2 + 1
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x):
        return self.layer(x).relu()
def module_compile():
    m = M()
    m.compile()
    m(x)
def decorator():
    @torch.compile
    def g(x): return x + 1
    g(x)
def decorator_with_arguments():
    @torch.compile(fullgraph=True, dynamic=True)
    def g(x): return x + 1
    g(x)
def twice():
    torch.compile(f)(x)
    torch.compile(f)(x)
def graph_break():
    def g(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2
    torch.compile(g)(x)
def default_backend():
    torch.compiler.set_default_backend("inductor")
    torch.compile(f)(x)
cases = dict(
    function=lambda: torch.compile(f)(x),
    imported_name=lambda: torch_compile(f)(x),
    module=lambda: torch.compile(M())(x),
    module_compile=module_compile,
    decorator=decorator,
    decorator_with_arguments=decorator_with_arguments,
    backend=lambda: torch.compile(f, backend="inductor")(x),
    reduce_overhead=lambda: torch.compile(f, mode="reduce-overhead")(x),
    max_autotune=lambda: torch.compile(f, backend="inductor", mode="max-autotune-no-cudagraphs")(x),
    options=lambda: torch.compile(f, options={"max_autotune": True})(x),
    default_backend=default_backend,
    dynamo_optimize_name=lambda: torch._dynamo.optimize("inductor")(f)(x),
    dynamo_optimize=lambda: torch._dynamo.optimize()(f)(x),
    inference_mode=lambda: torch.inference_mode()(torch.compile(f))(x),
    same_function_twice=twice,
    graph_break=graph_break,
    inductor_compile=lambda: torch.compile(f, backend=torch._inductor.compile)(x),
    inductor_compile_options=lambda: torch.compile(f, backend=torch._inductor.compile, options={"max_autotune": True})(x),
    compile_fx=lambda: torch.compile(f, backend=torch._inductor.compile_fx.compile_fx)(x),
    backend_function=lambda: torch.compile(f, backend=torch._dynamo.backends.inductor.inductor)(x),
    looked_up=lambda: torch.compile(f, backend=torch._dynamo.lookup_backend("inductor"))(x),
)
import torch._inductor.compile_fx, torch._dynamo.backends.inductor
show({name: caught(case) for name, case in cases.items()})
"""
    )
    result = lone_programs.run(code, env=_env(site)).value
    assert result == {**dict.fromkeys(result, 1), "graph_break": 2}
    assert len(result) == 21


def test_what_is_left_alone(lone_programs: Programs, site: Path) -> None:
    code = (
        PRELUDE
        + """
import torch._inductor.compile_fx as compile_fx
from torch._dynamo.backends import registry
x = torch.randn(3)
def f(x): return x * 2 + 1
@torch._dynamo.register_backend
def mine(gm, inputs): return gm.forward
@__import__("functools").wraps(torch._inductor.compile)
def mine_around_inductor(gm, inputs): return gm.forward
stock = []
def compile_by_stock(gm, inputs, **keywords):
    stock.append(1)
    return gm.forward
compile_fx.compile_fx = compile_by_stock
def aoti():
    torch._TorchCompileAOTInductorWrapper(None, None, None)(torch.fx.symbolic_trace(f), [x])
def precompile():
    with torch._dynamo.config.patch(caching_precompile=True):
        torch._TorchCompileInductorWrapper(None, None, None)(torch.fx.symbolic_trace(f), [x])
def meta_device():
    torch.compile(f)(torch.ones(3, device="meta"))
def off():
    neuroncache.disable()
    torch.compile(f)(x)
    neuroncache.enable()
def no_caches():
    with torch._inductor.config.patch(force_disable_caches=True):
        torch.compile(f)(x)
cases = dict(
    eager=lambda: torch.compile(f, backend="eager")(x),
    aot_eager=lambda: torch.compile(f, backend="aot_eager")(x),
    registered=lambda: torch.compile(f, backend="mine")(x),
    function=lambda: torch.compile(f, backend=lambda gm, inputs: gm.forward)(x),
    wraps_inductor=lambda: torch.compile(f, backend=mine_around_inductor)(x),
    aoti=aoti, precompile=precompile, meta_device=meta_device, disabled=off, no_caches=no_caches,
)
counts = {name: caught(case) for name, case in cases.items()}
lookup = registry.lookup_backend
inductor = lookup("inductor")
facts = dict(
    plain=[type(lookup(name)).__name__ for name in ("eager", "aot_eager", "mine")],
    listed="inductor" in torch._dynamo.list_backends() and "mine" in torch._dynamo.list_backends(),
    tags=inductor._tags == (), name=inductor.__name__, registered=registry._is_registered_backend(inductor),
    same=lookup("inductor") is inductor and __import__("copy").deepcopy(inductor) is inductor,
    reasons=neuroncache.stats()["bypass_reasons"], stock=len(stock),
)
show([counts, facts])
"""
    )
    counts, facts = lone_programs.run(code, env=_env(site)).value
    assert counts == dict.fromkeys(counts, 0)
    assert facts == {
        "plain": ["function"] * 3,
        "listed": True,
        "tags": True,
        "name": "inductor",
        "registered": True,
        "same": True,
        "reasons": {"precompile": 1, "device_meta": 1, "disabled": 1, "caches_disabled": 1},
        "stock": 5,
    }


def test_ahead_of_time_compilation_is_stock(lone_programs: Programs, site: Path) -> None:
    code = (
        PRELUDE
        + """
def f(x): return x * 2 + 1
x = torch.randn(3)
compiled = torch.compile(f, fullgraph=True).aot_compile(((x,), {}))
show([bool(torch.equal(compiled(x), f(x))), neuroncache.stats()["bypass_reasons"]])
"""
    )
    assert lone_programs.run(code, env=_env(site)).value == [True, {"aot_compile": 1}]


def test_hugging_face(lone_programs: Programs, site: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    code = (
        PRELUDE
        + """
import accelerate, transformers
from accelerate.utils import TorchDynamoPlugin
from torch.utils.data import Dataset
config = transformers.LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1
)
def model(): return transformers.LlamaForCausalLM(config)
class Rows(Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): return {"input_ids": torch.arange(4), "labels": torch.arange(4)}
def trainer(**arguments):
    arguments = transformers.TrainingArguments(
        sys.argv[1], max_steps=1, torch_compile=True, report_to=[], use_cpu=True, save_strategy="no",
        per_device_train_batch_size=2, disable_tqdm=True, **arguments
    )
    transformers.Trainer(model(), arguments, train_dataset=Rows()).train()
def accelerated(**arguments):
    accelerate.Accelerator._reset_state() if hasattr(accelerate.Accelerator, "_reset_state") else None
    accelerate.state.AcceleratorState._reset_state(True)
    prepared = accelerate.Accelerator(cpu=True, **arguments).prepare(model())
    prepared(input_ids=torch.arange(4).view(1, 4), labels=torch.arange(4).view(1, 4))
cases = dict(
    trainer=trainer,
    trainer_mode=lambda: trainer(torch_compile_backend="inductor", torch_compile_mode="max-autotune-no-cudagraphs"),
    accelerate=lambda: accelerated(dynamo_backend="inductor"),
    accelerate_plugin=lambda: accelerated(dynamo_plugin=TorchDynamoPlugin(backend="inductor")),
    accelerate_regional=lambda: accelerated(
        dynamo_plugin=TorchDynamoPlugin(backend="inductor", use_regional_compilation=True)
    ),
)
show({name: caught(case) for name, case in cases.items()})
"""
    )
    result = lone_programs.start(code, str(tmp_path / "out"), env=_env(site)).wait().value
    regional = result.pop("accelerate_regional")
    assert result == {"trainer": 1, "trainer_mode": 1, "accelerate": 1, "accelerate_plugin": 1}
    assert regional > 1, "each repeated block is a graph"


def test_import_is_light(lone_programs: Programs, site: Path) -> None:
    """Neither the package nor its hooks import anything heavy, open a file or a socket, or start a thread."""
    code = """
import sys
import neuroncache
light = sorted(name for name in sys.modules if name.startswith(("torch", "typing", "logging", "json", "socket")))
import json, os, threading
events = []
def audit(event, arguments):
    if events is not None and event in ("open", "socket.__new__", "socket.connect", "subprocess.Popen", "os.fork"):
        events.append((event, str(arguments[0])))
import torch
from neuroncache import _autoload, hooks
installed, problem = hooks.installed(), repr(_autoload.problem)
loaded = sorted(name for name in sys.modules if name.startswith("neuroncache"))
heavy = [name for name in ("torch._dynamo.eval_frame", "torch._inductor.compile_fx") if name in sys.modules]
sys.addaudithook(audit)
del torch._TorchCompileInductorWrapper.__call__._neuroncache_original
_autoload.install()
sockets = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}") and "socket" in os.readlink(f"/proc/self/fd/{fd}")]
print(json.dumps([light, installed, problem, loaded, heavy, list(events), sockets, threading.active_count()]))
"""
    light, installed, problem, loaded, heavy, events, sockets, threads = lone_programs.run(code, env=_env(site)).value
    assert light == []
    assert installed
    assert problem == "None"
    assert loaded == [
        "neuroncache",
        "neuroncache._autoload",
        "neuroncache._version",
        "neuroncache.hooks",
    ]
    assert heavy == []
    assert events == []
    assert sockets == []
    assert threads == 1


PROBE = """
import json, sys, torch
wrapper = torch._TorchCompileInductorWrapper.__call__
original = getattr(wrapper, "_neuroncache_original", None)
from torch._dynamo.backends import registry
print(json.dumps([
    original is not None, hasattr(original, "_neuroncache_original"), type(registry._COMPILER_FNS).__name__,
    sorted(name for name in sys.modules if name.startswith("neuroncache")),
]))
"""


def test_switched_off_it_vanishes(lone_programs: Programs, site: Path) -> None:
    hooked, _, table, loaded = lone_programs.run(PROBE, env={**_env(site), "NEURONCACHE": "0"}).value
    assert not hooked
    assert table == "dict"
    assert "neuroncache.hooks" not in loaded


@pytest.mark.parametrize("autoload", ["1", "0"])
def test_start_up_file_takes_over_when_autoload_is_off(lone_programs: Programs, site: Path, autoload: str) -> None:
    code = f"import site\nsite.addsitedir({str(site)!r})\n" + PROBE
    env = {"PYTHONPATH": f"{site}:{SHIM}", "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    hooked, twice, table, _ = lone_programs.run(code, env=env).value
    assert hooked
    assert not twice
    assert table == "_Backends"


def test_start_up_file_is_silent_when_off(lone_programs: Programs, site: Path) -> None:
    code = f"import site\nsite.addsitedir({str(site)!r})\n" + PROBE
    env = {**_env(site), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "NEURONCACHE": "off"}
    assert lone_programs.run(code, env=env).value[0] is False


def test_a_damaged_installation_does_not_stop_torch(lone_programs: Programs, site: Path, tmp_path: Path) -> None:
    shutil.copytree(SHIM / "neuroncache", tmp_path / "damaged" / "neuroncache")
    (tmp_path / "damaged/neuroncache/hooks.py").write_text("this is no Python\n")
    result = lone_programs.run(
        "import json, torch, neuroncache._autoload as a\nprint(json.dumps(type(a.problem).__name__))",
        env={"PYTHONPATH": f"{site}:{tmp_path / 'damaged'}"},
    )
    assert result.value == "SyntaxError"
