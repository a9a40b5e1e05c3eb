"""The whole chain: an ordinary program, the shim's buckets, the emulated backend and `neuronx-cc`."""

from __future__ import annotations

from pathlib import Path

from conftest import Chain

PERCEPTRON = """
    import json, sys, torch, neuroncache

    neuroncache.enable()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    compiled = torch.compile(model, backend="neuron")

    def grads(function, x):
        model.zero_grad()
        result = function(x)
        result.square().mean().backward()
        return [result.detach(), *[parameter.grad.clone() for parameter in model.parameters()]]

    for length in json.loads(sys.argv[1]):
        x = torch.randn(length, 8)
        torch.testing.assert_close(grads(compiled, x), grads(model, x))

    from neuron_emulator import toolchain
    from neuroncache.bucketing import dispatch

    buckets = sorted({tuple(record.unit.buckets.values()) for one in dispatch.everyone for record in one.records()})
    print(json.dumps({"counts": toolchain.counts, "buckets": buckets, "stats": neuroncache.stats()}))
"""


def test_many_lengths_compile_once_per_bucket_and_direction(chain: Chain, tmp_path: Path) -> None:
    lengths = "[16, 9, 11, 13, 32, 25, 12, 15, 31, 29, 14, 27]"
    first = chain.run(PERCEPTRON, lengths)
    assert first["stats"]["errors"] == 0 and first["stats"]["refusals"] == []
    assert len(first["buckets"]) < 5
    # The first length is compiled as it is, before anything is known to vary.
    assert chain.compiles() == first["counts"]["compiles"] == 2 * (len(first["buckets"]) + 1)
    known = chain.compiles()

    second = chain.run(PERCEPTRON, lengths)
    assert second["stats"]["errors"] == 0 and second["buckets"] == first["buckets"]
    # It is all in the cache that the backend has of its own.
    assert second["counts"]["hits"] == second["counts"]["graphs"] > 0
    assert chain.compiles() == known

    third = chain.run(PERCEPTRON, lengths, env={"TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "empty")})
    assert third["stats"]["errors"] == 0 and third["buckets"] == first["buckets"]
    # Now it runs neuronx-cc for each graph, and the wrapper answers.
    assert third["counts"]["compiles"] == third["counts"]["graphs"] == second["counts"]["graphs"]
    assert chain.compiles() == known
