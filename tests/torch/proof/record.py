"""Writes the padding request of a deep Llama, for tests/bench/padding_bench.cpp.

`python -m tests.torch.proof.record FILE [LAYERS]`: the request is compressed with zstd where FILE ends so (needs the program).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import models, tool


class Recorded(Exception):
    """The request is written; nothing is run."""


class Recorder(tool.Tool):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = path

    def plan(self, request: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps({**request, "inputs": "zero", "claims": False}, separators=(",", ":")).encode()
        if self.file.suffix == ".zst":
            text = subprocess.run(
                ["zstd", "-19", "-c", f"--stream-size={len(text)}"], input=text, stdout=subprocess.PIPE, check=True
            ).stdout
        self.file.write_bytes(text)
        counts = [len(request[role]["nodes"]) for role in ("forward", "backward")]
        raise Recorded(f"{self.file}: {counts[0]} and {counts[1]} nodes")


def main() -> None:
    layers = int(sys.argv[2]) if len(sys.argv) > 2 else 48
    options = models._gqa(num_hidden_layers=layers)
    models.MODELS["recorded"] = models._causal("LlamaConfig", options, attn_implementation="eager")
    print(models.prove("recorded", engine=Recorder(Path(sys.argv[1]))).reason)


if __name__ == "__main__":
    main()
