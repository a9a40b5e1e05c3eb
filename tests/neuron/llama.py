"""An ordinary training loop on batches of many lengths: a tiny Llama, compiled for `neuron`, against eager mode.

python llama.py BATCHESxLENGTHS..., as in 3x11. Prints JSON: the compiles, the buckets, the shim's statistics.
"""

from __future__ import annotations

import json
import sys

import neuroncache
import torch
import transformers
from neuron_emulator import toolchain
from neuroncache.bucketing import dispatch


def main() -> None:
    neuroncache.enable()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(config)
    # Open from the first call on, so that nothing is compiled for the sizes of that one alone.
    compiled = torch.compile(model, backend="neuron", dynamic=True)
    for shape in sys.argv[1:]:
        rows, length = map(int, shape.split("x"))
        tokens = torch.randint(0, config.vocab_size, (rows, length))
        lengths = torch.randint(2, length + 1, (rows, 1))
        mask = (torch.arange(length) < lengths).long()
        given = {"input_ids": tokens, "attention_mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}
        expected, actual = step(model, model, given), step(model, compiled, given)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    records = [record for one in dispatch.everyone for record in one.records()]
    buckets = sorted({tuple(sorted(record.unit.buckets.items())) for record in records})
    print(json.dumps({"counts": toolchain.counts, "buckets": buckets, "stats": neuroncache.stats()}))


def step(model: torch.nn.Module, function: torch.nn.Module, given: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Loss, logits, and the gradients of all parameters."""
    model.zero_grad()
    result = function(**given)
    result.loss.backward()
    grads = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    return [result.loss.detach(), result.logits.detach(), *grads]


if __name__ == "__main__":
    main()
