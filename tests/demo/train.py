"""An ordinary training script: a small Llama on random text. It does not know of neuroncache.

python train.py [--eager] [--steps N] [--layers N] [--hidden N]
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import torch
import transformers


def cpu_seconds() -> float:
    """User and system time of this process and of the children that it waited for."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=arguments.hidden,
        intermediate_size=2 * arguments.hidden,
        num_hidden_layers=arguments.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = model if arguments.eager else torch.compile(model)

    started, cpu_started = time.monotonic(), cpu_seconds()
    losses = []
    first = cpu_first = 0.0
    for number in range(arguments.steps):
        tokens = torch.randint(0, 256, (4, 32))
        loss = step(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if number == 0:
            first, cpu_first = time.monotonic() - started, cpu_seconds() - cpu_started
    rest = (time.monotonic() - started - first) / max(1, arguments.steps - 1)
    print(json.dumps({"losses": losses, "first_s": first, "first_cpu_s": cpu_first, "step_s": rest}))


if __name__ == "__main__":
    main()
