"""The canonical graph and the key: what changes them and what does not."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import SHIM
from neuroncache import canonical, cpu, expr, functions, keys
from neuroncache.errors import Unsupported
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional as F


def captured(function: Callable[..., Any], *inputs: Any, dynamic: bool | None = None) -> canonical.Graph:
    """The canonical form of what Dynamo captures of one call."""
    graphs: list[canonical.Graph] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        graphs.append(canonical.export_captured(gm))
        return gm

    torch._dynamo.reset()
    torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)(*inputs)
    return graphs[0]


def functional(function: Callable[..., Any], *inputs: Any, dynamic: bool | None = None) -> list[canonical.Graph]:
    """The canonical forms of the functional graphs of one call: forward and, where there is one, backward."""
    graphs: list[canonical.Graph] = []

    def compiler(role: str) -> Callable[..., Any]:
        def take(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
            graphs.append(canonical.export_functional(gm, example_inputs, role))
            return gm

        return take

    backend = aot_autograd(
        fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), inference_compiler=compiler("inference")
    )
    torch._dynamo.reset()
    result = torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)(*inputs)
    if isinstance(result, torch.Tensor) and result.requires_grad:
        result.sum().backward()
    return graphs


X = torch.arange(12.0).reshape(3, 4)


def test_renaming_leaves_no_trace() -> None:
    def one(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        product = x @ y.T
        return torch.relu(product) + 1

    def two(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        # Another file position and other names.
        p = left @ right.T

        return torch.relu(p) + 1

    assert captured(one, X, X).text == captured(two, X, X).text


def test_another_model_before_leaves_no_trace() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 2) * x.shape[0]

    alone = captured(f, X, dynamic=True).text
    captured(lambda a, b: torch.cat([a, b]).sum(0), torch.ones(5, 7), torch.ones(6, 7), dynamic=True)
    assert captured(f, X, dynamic=True).text == alone


@pytest.mark.parametrize(
    "other",
    [
        lambda x: torch.relu(x * 2.0) + 2,
        lambda x: torch.relu(x * 2.0) - 1,
        lambda x: torch.relu(x * 2.0000000000000004) + 1,
        lambda x: torch.relu(x * 2) + 1,
        lambda x: torch.sigmoid(x * 2.0) + 1,
        lambda x: torch.relu(x * 2.0) + True,
        lambda x: torch.relu(x * 2.0).add(1, alpha=2),
        lambda x: torch.relu((x * 2.0).t()) + 1,
    ],
)
def test_a_change_of_the_program_shows(other: Callable[..., Any]) -> None:
    assert captured(lambda x: torch.relu(x * 2.0) + 1, X).digest != captured(other, X).digest


@pytest.mark.parametrize(
    "other",
    [
        X.double(),
        X.reshape(4, 3),
        X.t().contiguous().t(),
        torch.zeros(20)[8:].reshape(3, 4),
        X.clone().requires_grad_(),
        nn.Parameter(X),
    ],
    ids=["dtype", "shape", "strides", "offset", "gradient", "parameter"],
)
def test_a_change_of_an_input_shows(other: torch.Tensor) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert captured(f, X).digest != captured(f, other).digest


def test_constants_count_by_content() -> None:
    def using(values: list[float]) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x + torch.tensor(values)

    first = functional(using([1.0, 2.0, 3.0, 4.0]), X)
    assert [graph.text for graph in functional(using([1.0, 2.0, 3.0, 4.0]), X)] == [graph.text for graph in first]
    assert [graph.text for graph in functional(using([1.0, 2.0, 3.0, 5.0]), X)] != [graph.text for graph in first]


def test_swapped_statements_give_one_functional_graph() -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        a = x.sin()
        b = x.cos()
        return a * b + 1

    def two(x: torch.Tensor) -> torch.Tensor:
        b = x.cos()
        a = x.sin()
        return a * b + 1

    assert functional(one, X)[0].text == functional(two, X)[0].text
    # Program order stays where statements may change what others see.
    assert captured(one, X).text != captured(two, X).text


def test_random_operators_keep_their_order() -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        a = torch.rand_like(x)
        b = torch.randn_like(x)
        return a - b

    def two(x: torch.Tensor) -> torch.Tensor:
        b = torch.randn_like(x)
        a = torch.rand_like(x)
        return a - b

    assert functional(one, X)[0].text != functional(two, X)[0].text


def test_changes_in_place_keep_their_order() -> None:
    def order(first: Any, second: Any) -> list[str]:
        graph = torch.fx.Graph()
        x = graph.placeholder("primals_1")
        for target in (first, second):
            node = graph.call_function(target, (x, x))
            node.meta["val"] = X
        graph.output((node,))
        exported = canonical.export_functional(torch.fx.GraphModule({}, graph), [X], "inference")
        return [entry["op"] for entry in exported.document["nodes"]]

    aten = torch.ops.aten
    assert order(aten.copy_.default, aten.add.Tensor) == ["aten.copy_.default", "aten.add.Tensor"]
    # Without a change in place, what nothing needs is left out.
    assert order(aten.mul.Tensor, aten.add.Tensor) == ["aten.add.Tensor"]


def test_symbols_are_numbered_by_the_graph() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1) * y.shape[0] + x.shape[0] // 2

    graph = captured(f, torch.ones(6, 8), torch.ones(5), dynamic=True)
    assert [symbol["id"] for symbol in graph.document["symbols"]] == ["s0", "s1", "s2"]
    tensors = [entry["type"] for entry in graph.document["inputs"] if "t" in entry["type"]]
    assert tensors[0] == {"t": "float32", "d": ["s0", "s1"], "s": ["s1", 1]}
    assert graph.symbols.hints() == {"s0": 6, "s1": 8, "s2": 5}
    texts = [node["out"] for node in graph.document["nodes"] if node["op"] == "method:reshape"]
    assert texts == [{"t": "float32", "d": [["*", "s0", "s1"]], "s": [1]}]


def test_sizes_that_symbols_stand_for_are_no_identity() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sum(0) / x.shape[0]

    small, large = (captured(f, torch.ones(n, 4), dynamic=True) for n in (3, 300))
    assert small.text == large.text
    assert json.loads(small.with_hints())["hints"] != json.loads(large.with_hints())["hints"]


def test_expressions_evaluate() -> None:
    assert expr.evaluate(["+", ["*", "s0", 3], ["//", "s1", 4], -1], {"s0": 5, "s1": 11}) == 16
    assert expr.evaluate(["Max", 0, ["%", "s0", 4]], {"s0": 6}) == 2
    with pytest.raises(Unsupported):
        expr.evaluate("s9", {})


def test_a_training_graph_is_stable_and_has_kinds() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8))

    def f(x: torch.Tensor) -> torch.Tensor:
        return model(x)

    first, second = functional(f, X), functional(f, X)
    assert [graph.text for graph in first] == [graph.text for graph in second]
    assert len(first) == 2
    assert {entry["kind"] for entry in first[0].document["inputs"]} == {"primal"}
    assert {entry["kind"] for entry in first[1].document["inputs"]} >= {"saved", "tangent"}


@torch.library.custom_op("neuroncache_test::twice", mutates_args=())
def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@_twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch._dynamo.allow_in_graph
def _mine(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("function", [_twice, _mine], ids=["operator", "function"])
def test_code_from_outside_torch_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="from outside torch") as caught:
        captured(lambda x: function(x) + 1, X)
    cause = caught.value.__cause__ or caught.value.inner_exception  # type: ignore[attr-defined]
    assert isinstance(cause, Unsupported)
    assert cause.op
    assert "test_canonical" in cause.source


def test_functions_have_their_true_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert functions.qualified_name(torch.add) == "fn:torch.add"
    assert functions.qualified_name(F.gelu) == "fn:torch._C._nn.gelu"
    assert functions.qualified_name(F.max_pool2d) == "fn:torch.nn.functional.max_pool2d"

    def softmax(*arguments: Any) -> None: ...

    softmax.__module__, softmax.__qualname__ = "torch.nn.functional", "softmax"
    with pytest.raises(Unsupported):
        functions.qualified_name(softmax)
    monkeypatch.setattr(F, "softmax", softmax)
    with pytest.raises(Unsupported, match="replaced"):
        functions.qualified_name(softmax)


def test_constants_that_are_not_plain_are_refused() -> None:
    with pytest.raises(Unsupported):
        canonical.content_bytes(torch.zeros(3, device="meta"))
    with pytest.raises(Unsupported):
        canonical.content_bytes(torch.eye(3).to_sparse())
    assert canonical.content_digest(X) == canonical.content_digest(X.t().contiguous().t())


# -- keys -------------------------------------------------------------------------------------------------------------


def parts(graph: canonical.Graph | None = None, cpu_class: cpu.CpuClass = cpu.V3) -> dict[str, str]:
    return dict(keys.parts_of(keys.Request("aot", graph or captured(torch.sin, X), cpu_class)))


def test_key_of_the_protocol() -> None:
    # sha256("neuroncache-action-v1\0" + u32le(1) "a" u64le(1) "1" + u32le(1) "b" u64le(0)), parts in any order
    expected = "661a2d2f32c5c5615c97e7383f86973c8e3ffdad2a7b3e25fcd40b1235b0d620"
    assert keys.action_key([("b", ""), ("a", "1")]) == expected
    assert keys.action_key([("a", ""), ("b", "1")]) != expected


def test_state_of_the_process_shows() -> None:
    graph = captured(torch.sin, X)
    plain = parts(graph)
    changed: dict[str, dict[str, str]] = {"cpu.class": parts(graph, cpu.V4)}
    torch.use_deterministic_algorithms(True)
    changed["determinism"] = parts(graph)
    torch.use_deterministic_algorithms(False)
    with torch.autocast("cpu", torch.bfloat16):
        changed["autocast"] = parts(graph)
    with torch.no_grad():
        changed["grad"] = parts(graph)
    torch.set_default_dtype(torch.float64)
    changed["precision"] = parts(graph)
    torch.set_default_dtype(torch.float32)
    with torch._inductor.config.patch({"cpp.enable_floating_point_contract_flag": "fast"}):
        changed["config.inductor"] = parts(graph)
    with torch._functorch.config.patch(cse=False):
        changed["config.functorch"] = parts(graph)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    changed["threads"] = parts(graph)
    torch.set_num_threads(threads)
    for name, values in changed.items():
        different = {key for key in plain if plain[key] != values[key]} - {"config.inductor.set"}
        # Inductor mirrors deterministic algorithms in a setting of its own.
        assert different == ({name, "config.inductor"} if name == "determinism" else {name})
    assert parts(graph) == plain
    # A debugging switch is nobody's business.
    with torch._inductor.config.patch({"trace.debug_dir": "/tmp/x", "compile_threads": 1, "verbose_progress": True}):
        assert parts(graph) == plain


def test_a_pass_without_identity_is_refused() -> None:
    with torch._inductor.config.patch(post_grad_custom_pre_pass=lambda graph: None), pytest.raises(Unsupported):
        parts()


def test_every_part_has_a_reason() -> None:
    assert all(part.reason for part in keys.TABLE)
    assert len({part.name for part in keys.TABLE}) == len(keys.TABLE)


def test_aliases_and_subclasses_of_inputs() -> None:
    a = torch.zeros(4)
    assert keys.input_facts([a, a[:2]]) != keys.input_facts([a, torch.zeros(2)])
    assert keys.input_facts([a]) != keys.input_facts([nn.Parameter(a)])

    class Mine(torch.Tensor):
        pass

    with pytest.raises(Unsupported):
        keys.input_facts([torch.zeros(2).as_subclass(Mine)])


def test_keys_agree_across_processes() -> None:
    program = textwrap.dedent(
        """
        import sys, torch
        sys.path[:0] = sys.argv[1:]
        from neuroncache import canonical, cpu, keys
        torch.set_num_threads(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.BatchNorm1d(8))
        def backend(gm, inputs):
            request = keys.Request("aot", canonical.export_captured(gm), cpu.V3, keys.canonical_details(x=keys.input_facts(inputs)))
            print(keys.action_key(keys.parts_of(request)))
            return gm
        torch.compile(lambda x: model(x).relu(), backend=backend, dynamic=True)(torch.ones(3, 4))
        """
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program, str(SHIM)],
            env={"PYTHONHASHSEED": seed, "HOME": "/tmp", "NEURONCACHE": "0"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    ]
    assert outputs[0] == outputs[1] and len(outputs[0].split()) >= 1


# -- CPU classes ------------------------------------------------------------------------------------------------------


def test_cpu_classes(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    record = (
        "processor : 0\nflags\t\t: "
        + " ".join(sorted(cpu.V3.features))
        + "\nbugs : none\n\nprocessor : 1\nflags : fpu\n"
    )
    (tmp_path / "cpuinfo").write_text(record)
    features = cpu.read_features(str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(cpu, "_host", features)
    assert cpu.choose("auto") is cpu.V3
    assert cpu.missing(cpu.V4) == sorted(cpu.V4.features - cpu.V3.features)
    with pytest.raises(Unsupported, match="avx512"):
        cpu.choose("x86-64-v4")
    monkeypatch.setattr(cpu, "_host", cpu.V4.features)
    assert cpu.choose("auto") is cpu.V4
    assert cpu.choose("x86-64-v3") is cpu.V3
    assert cpu.choose("auto", "avx2") is cpu.V3
    with pytest.raises(Unsupported):
        cpu.choose("auto", "default")
    monkeypatch.setattr(cpu, "_host", frozenset())
    with pytest.raises(Unsupported):
        cpu.choose("auto")
    assert cpu.read_features(str(tmp_path / "none")) == frozenset()


def _function_of(backward: Callable[..., Any], differentiable: bool = True) -> Callable[..., Any]:
    gradient = backward

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            ctx.save_for_backward(x)
            second = x + 1
            if not differentiable:
                ctx.mark_non_differentiable(second)
            return x * x, second

        @staticmethod
        def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return gradient(first, *ctx.saved_tensors)

    return lambda x: sum(Function.apply(x))


def test_a_users_autograd_function_is_what_its_two_graphs_are() -> None:
    x = X.clone().requires_grad_()
    double = captured(_function_of(lambda g, x: g * 2 * x), x).text
    assert captured(_function_of(lambda gradient, y: gradient * 2 * y), x).text == double
    others = [
        captured(_function_of(lambda g, x: g * 3 * x), x).text,
        captured(_function_of(lambda g, x: g * 2 * x, differentiable=False), x).text,
    ]
    assert len({double, *others}) == 3
