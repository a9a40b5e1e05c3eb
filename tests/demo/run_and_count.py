"""Runs a script unchanged, then writes what neuroncache did in this process: run_and_count.py FILE SCRIPT [ARGUMENT...]"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    counts, script, *_ = sys.argv[1:]
    sys.argv = sys.argv[2:]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        import neuroncache

        Path(counts).write_text(json.dumps(neuroncache.stats()))
