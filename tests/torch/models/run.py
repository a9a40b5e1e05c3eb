"""Runs cases of the zoo compiled, two optimizer steps each, and writes everything they computed.

``run.py OUT NAME...``: OUT is a file for ``torch.save``: {name: {"loss0": tensor, "grad:...": tensor, "state:...": tensor}}, and
``stats`` under the name "" (the shim's counters, {} when it is off).
"""

from __future__ import annotations

import os
import sys
from typing import Any

import neuroncache
import torch
import zoo
from neuroncache import _autoload


def run(name: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(1234)
    module, step = zoo.CASES[name]()
    compiled = torch.compile(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    results: dict[str, torch.Tensor] = {}
    for index in range(2):
        torch.manual_seed(index)
        loss = step(compiled)
        results[f"loss{index}"] = loss.detach().clone()
        if loss.requires_grad:
            optimizer.zero_grad()
            loss.backward()
            for parameter, value in module.named_parameters():
                if value.grad is not None:
                    results[f"grad{index}:{parameter}"] = value.grad.clone()
            optimizer.step()
    for key, value in module.state_dict().items():
        results[f"state:{key}"] = value.clone()
    torch._dynamo.reset()
    return results


def main() -> None:
    out, *names = sys.argv[1:]
    _autoload.install()  # does nothing where it is installed already, or switched off
    torch.set_num_threads(1)
    results: dict[str, Any] = {name: run(name) for name in names}
    off = os.environ.get("NEURONCACHE") == "0"
    results[""] = {} if off else neuroncache.stats()
    torch.save(results, out)


if __name__ == "__main__":
    main()
