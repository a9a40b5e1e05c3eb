"""Trains a perceptron on batches of many lengths, with `torch.compile(backend="neuron")` on the emulated toolchain.

Run by .venv-neuron/bin/python with this folder on PYTHONPATH and PATH. Without the line that enables neuroncache the second length
is an error: Dynamo takes the size as open then, which the backend refuses.
"""

from __future__ import annotations

import random
import time

import neuroncache
import torch
from neuron_emulator import toolchain
from torch import nn


def main() -> None:
    neuroncache.enable()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    compiled = torch.compile(model, backend="neuron")
    draw = random.Random(0)
    for step in range(24):
        started = time.monotonic()
        x = torch.randn(draw.randint(9, 32), 16)
        loss = (compiled(x).squeeze(1) - x.mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        compiles = toolchain.counts["compiles"]
        print(
            f"step {step:2}: {len(x):2} rows, loss {loss:.4f}, {time.monotonic() - started:5.2f} s, {compiles} compiles"
        )


if __name__ == "__main__":
    main()
