"""A small Llama through the whole chain."""

from __future__ import annotations

from pathlib import Path

from conftest import Chain


def test_a_llama_trains_on_buckets(chain: Chain, tmp_path: Path) -> None:
    shapes = "4x16 3x11 4x9 3x15 4x32 3x25 4x12 3x29 4x10 3x14 4x31 3x16".split()
    program = Path(__file__).with_name("llama.py").read_text()
    few = {"NEURONCACHE_MAX_BUCKETS": "2"}
    first = chain.run(program, *shapes, env=few)
    assert first["stats"]["errors"] == 0 and first["stats"]["refusals"] == []
    assert len(first["buckets"]) <= 4
    assert chain.compiles() == first["counts"]["compiles"] == 2 * len(first["buckets"])
    known = chain.compiles()
    again = chain.run(program, *shapes, env=few | {"TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "empty")})
    assert again["stats"]["errors"] == 0 and again["counts"]["compiles"] > 0
    assert chain.compiles() == known
