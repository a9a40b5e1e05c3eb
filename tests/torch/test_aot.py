"""Captured graphs: the second process runs neither AOTAutograd nor inductor, and computes the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SHIM
from local_cache import LocalCache
from neuroncache import aot, compat, config, keys
from neuroncache.compile import compile_graph
from neuroncache.errors import LoadRefused, Unsupported

HERE = Path(__file__).parent
STORED = ["mlp", "cnn", "sizes", "attention", "inference", "autocast", "custom_function"]
COLD = [*STORED, "own_policy", "other_guards"]


def run(directory: Path, name: str, cases: list[str], **environment: str) -> dict[str, Any]:
    out = directory / f"{name}.pt"
    result = subprocess.run(
        [sys.executable, str(HERE / "aot_cases.py"), str(directory / "store"), str(out), *cases],
        env={
            **os.environ,
            "PYTHONPATH": f"{SHIM}:{HERE}",
            "NEURONCACHE": "0",
            "TORCHINDUCTOR_CACHE_DIR": str(directory / f"inductor-{name}"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    values: dict[str, Any] = torch.load(out)
    return values


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("aot")
    (directory / "empty").mkdir()
    cold = run(directory, "cold", COLD)
    loaded = run(directory, "loaded", STORED, PATH=str(directory / "empty"), PYTHONHASHSEED="5")
    return {"cold": cold, "loaded": loaded}


def events(run: dict[str, Any], name: str) -> set[tuple[str, str]]:
    return {(kind, event) for kind, event, _ in run[name]["events"]}


@pytest.mark.parametrize("name", STORED)
def test_the_second_process_computes_the_same_bits(runs: dict[str, dict[str, Any]], name: str) -> None:
    cold, loaded = (runs[mode][name]["values"] for mode in ("cold", "loaded"))
    assert len(cold) == len(loaded) > 1
    for first, second in zip(cold, loaded, strict=True):
        assert first.dtype == second.dtype and first.stride() == second.stride()
        assert torch.equal(first.flatten().view(torch.uint8), second.flatten().view(torch.uint8))


@pytest.mark.parametrize("name", STORED)
def test_the_second_process_compiles_nothing(runs: dict[str, dict[str, Any]], name: str) -> None:
    # The same graph under no_grad and inference_mode is one entry, so there may be a hit in the first process, too.
    assert events(runs["cold"], name) - {("aot", "hit")} == {("graph", "built"), ("aot", "built")}
    assert runs["cold"][name]["refusals"] == []
    assert events(runs["loaded"], name) == {("aot", "hit")}
    assert runs["loaded"][""] == []


def test_a_restart_of_the_trace_is_replayed(runs: dict[str, dict[str, Any]]) -> None:
    cold, loaded = (
        [key for kind, _, key in runs[mode]["sizes"]["events"] if kind == "aot"] for mode in ("cold", "loaded")
    )
    assert cold == loaded and len(set(cold)) == 2


def test_what_torch_does_not_describe_keeps_its_graphs_only(runs: dict[str, dict[str, Any]]) -> None:
    assert events(runs["cold"], "own_policy") == {("graph", "built")}
    (reason,) = runs["cold"]["own_policy"]["refusals"]
    assert "policy of the user's own" in reason


def test_a_users_function_has_its_own_gradient(runs: dict[str, dict[str, Any]]) -> None:
    torch.manual_seed(11)
    model = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8)
    # The gradient is that of the function's own backward.
    hidden = model(x)
    output = (hidden * 2).sin()
    upstream = 2 * output * (hidden * 2).cos() * 5
    values = runs["cold"]["custom_function"]["values"]
    torch.testing.assert_close(values[0], output)
    torch.testing.assert_close(values[1], upstream.t() @ x)


def test_entries_for_other_sizes_stand_side_by_side(runs: dict[str, dict[str, Any]]) -> None:
    first, other = (runs["cold"][name] for name in ("sizes", "other_guards"))
    assert [value.tolist() for value in first["values"]] == [value.tolist() for value in other["values"]]
    # The entry that does not fit is found, and another is made under a key of its own.
    built = {key for kind, event, key in other["events"] if event == "built"}
    found = {key for kind, event, key in other["events"] if event == "hit"}
    assert built and not built & {key for _, _, key in first["events"]}
    assert found & {key for _, _, key in first["events"]}


# -- in this process --------------------------------------------------------------------------------------------------


def compiled_with(options: dict[str, Any]) -> Unsupported:
    """The refusal of a small graph under options of inductor."""
    caught: list[Unsupported] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        try:
            compile_graph(gm, inputs, options=options, cache=LocalCache("/nonexistent"))  # type: ignore[arg-type]
        except Unsupported as error:
            caught.append(error)
        return gm

    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    return caught[0]


@pytest.fixture(autouse=True)
def _no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "makedirs", lambda *arguments, **keywords: None)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"cpp_wrapper": True}, "cpp_wrapper"),
        ({"freezing": True}, "freezing"),
        ({"force_disable_caches": True}, "force_disable_caches"),
        ({"cpp.simdlen": 128}, "vectors of 128 bits"),
        ({"cpp.march": "native"}, "-march=native"),
        ({"trace.enabled": True}, "trace"),
    ],
)
def test_other_products_of_inductor_are_left_alone(options: dict[str, Any], word: str) -> None:
    assert word in compiled_with(options).reason
    assert not torch._inductor.config.cpp_wrapper


def test_a_torch_without_our_names_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "_missing", "torch.somewhere")
    monkeypatch.setattr(compat, "_checked", True)
    assert "torch.somewhere" in compiled_with({}).reason


def test_the_class_asked_for_must_be_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from neuroncache import cpu

    monkeypatch.setattr(cpu, "_host", cpu.V3.features)
    monkeypatch.setitem(config._load(), "cpu_class", ("x86-64-v4", "python"))
    assert "avx512" in compiled_with({}).reason


class Theirs:
    pass


def test_objects_of_users_are_not_unpickled() -> None:
    import pickle

    with pytest.raises(Unsupported, match="Theirs"):
        aot._unpickle(pickle.dumps(Theirs()))
    with pytest.raises(Unsupported, match="eval"):
        aot._unpickle(b"cbuiltins\neval\n(S'1'\ntR.")
    assert aot._unpickle(pickle.dumps({"a": torch.float32})) == {"a": torch.float32}


def test_a_damaged_entry_is_refused() -> None:
    class Hit:
        manifest = {"outputs": [{"name": aot.ENTRY}]}

        def data(self, name: str) -> bytes:
            return b"cos\nsystem\n(S'true'\ntR."

    compilation = aot.Compilation.__new__(aot.Compilation)
    with pytest.raises(LoadRefused, match="system"):
        compilation.load(Hit())  # type: ignore[arg-type]


def test_what_surrounds_the_call_is_seen() -> None:
    assert compat.transforms_active() is None
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        assert "hooks" in str(compat.transforms_active())
    assert keys.FORMAT
