"""An ordinary training script whose batches differ in length: a small Llama, lengths of English sentences from a public trace.
It does not know of neuroncache.

python lengths.py TRACE [--eager] [--steps N] [--layers N] [--hidden N] [--backend NAME] [--dynamic auto|true|false] [--by-hand]
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import time
from pathlib import Path

import torch
import transformers

BATCH = 4


def batches(trace: Path, steps: int) -> list[int]:
    """The length of each batch: its longest sentence."""
    with trace.open(newline="") as file:
        rows = [(int(row["length"]), int(row["first"]) + int(row["rest"])) for row in csv.DictReader(file)]
    draw = random.Random(0)
    lengths, counts = [length for length, _ in rows if length > 1], [count for length, count in rows if length > 1]
    return [max(draw.choices(lengths, counts, k=BATCH)) for _ in range(steps)]


def batch(tokens: torch.Tensor, padded: bool) -> dict[str, torch.Tensor]:
    """What the model takes. `padded`: as people do it by hand."""
    if not padded:
        return {"input_ids": tokens, "labels": tokens}
    length = tokens.size(1)
    more = (0, (1 << (length - 1).bit_length()) - length)
    pad = torch.nn.functional.pad
    mask = pad(torch.ones_like(tokens), more)
    return {"input_ids": pad(tokens, more), "labels": pad(tokens, more, value=-100), "attention_mask": mask}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--dynamic", choices=("auto", "true", "false"), default="auto")
    parser.add_argument("--by-hand", action="store_true", help="pad each batch to a power of two, with a mask")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=arguments.hidden,
        intermediate_size=2 * arguments.hidden,
        num_hidden_layers=arguments.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    dynamic = {"auto": None, "true": True, "false": False}[arguments.dynamic]
    step = model if arguments.eager else torch.compile(model, backend=arguments.backend, dynamic=dynamic)

    lengths = batches(arguments.trace, arguments.steps)
    losses, seconds = [], []
    for length in lengths:
        tokens = torch.randint(0, 256, (BATCH, length))
        started = time.monotonic()
        loss = step(**batch(tokens, arguments.by_hand)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.monotonic() - started)
    print(json.dumps({"losses": losses, "lengths": lengths, "seconds": seconds}))


if __name__ == "__main__":
    main()
