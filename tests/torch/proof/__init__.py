"""The proof of the padding engine: plans run with the worst that padding may hold, against the unpadded run."""

import sys
from pathlib import Path

_SHIM = str(Path(__file__).resolve().parents[3] / "python_shim")
if _SHIM not in sys.path:
    sys.path.insert(0, _SHIM)
