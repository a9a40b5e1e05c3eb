"""The process behind `builder`: jobs come in on the standard input, each with its length in front, answers go out as lines."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import struct
import sys
from typing import Any, BinaryIO


def _read(stream: BinaryIO) -> bytes | None:
    """The next piece; None at the end of the input."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (size,) = struct.unpack(">Q", head)
    data = stream.read(size)
    return data if len(data) == size else None


def main() -> None:
    # Whatever a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with contextlib.suppress(OSError):
        os.nice(10)
    jobs = sys.stdin.buffer
    path = _read(jobs)
    if path is None:
        return
    sys.path[:] = json.loads(path)
    while (data := _read(jobs)) is not None:
        try:
            _do(pickle.loads(data))
            answer: dict[str, str] = {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _do(job: dict[str, Any]) -> None:
    import torch

    from neuroncache import compat, keys, verify
    from neuroncache.bucketing import recipe
    from neuroncache.bucketing.inner import Inductor
    from neuroncache.bucketing.plan import SubPlan
    from neuroncache.cache import Cache

    verify.apply_settings(job["settings"])
    for module, values in ((compat.inductor_config(), job["inductor"]), (compat.functorch_config(), job["functorch"])):
        for name, value in values.items():
            setattr(module, name, value)

    inner = Inductor(job["options"], Cache())
    inner.decompositions()  # makes the operators of plans known

    def plan(parts: tuple[Any, Any, Any] | None) -> SubPlan | None:
        return None if parts is None else SubPlan(*parts)

    forward = plan(job["forward"])
    assert forward is not None
    parts = recipe.Parts(forward, plan(job["backward"]), job["saved"], job["tangents"], job["names"], job["buckets"])
    inputs = recipe.tensors(job["inputs"]) + [torch.tensor(value, dtype=dtype) for value, dtype in job["truths"]]

    def function(role: str, values: list[Any]) -> Any:
        sub = parts.forward if role == "forward" else parts.backward
        assert sub is not None
        kind = "inference" if role == "forward" and parts.backward is None else role
        with torch.no_grad(), compat.no_tracing():
            return inner.compile(sub.instantiate(parts.buckets), values, kind)

    enabled, dtype = job["autocast"]
    with torch.autocast("cpu", dtype=dtype, enabled=enabled):
        here = keys.process_state()
        if here != [tuple(part) for part in job["state"]]:
            differing = [name for (name, text), other in zip(here, job["state"], strict=True) if text != other[1]]
            raise RuntimeError(f"this process cannot be made like the program's: {', '.join(differing)} differ")
        recipe.build(parts, inputs, function)


if __name__ == "__main__":
    main()
