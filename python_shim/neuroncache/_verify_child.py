"""The verifier process: loads an artifact the way a user's process will, runs it, and reports fingerprints.

It has no compiler on PATH and never imports inductor. Requests and answers are lines of JSON on the standard streams; it
ends when its input does, or when nothing was asked for a minute.
"""

from __future__ import annotations

import json
import os
import select
import sys

IDLE_S = 60.0


class _Lines:
    """Lines of the standard input, with a limit on how long it may be silent."""

    def __init__(self) -> None:
        self.pending = b""

    def next(self) -> str:
        """The next line; empty at the end of the input and after `IDLE_S` without one."""
        while b"\n" not in self.pending:
            ready, _, _ = select.select([0], [], [], IDLE_S)
            more = os.read(0, 1 << 16) if ready else b""
            if not more:
                return ""
            self.pending += more
        line, _, self.pending = self.pending.partition(b"\n")
        return line.decode()


def main() -> None:
    # Whatever a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines = _Lines()
    start = json.loads(lines.next())
    sys.path[:] = start["path"]
    from neuroncache import loader, verify

    last: verify.Run | None = None
    while True:
        line = lines.next()
        if not line:
            return
        request = json.loads(line)
        try:
            if "dump" in request:
                assert last is not None
                for index in request["dump"]:
                    with open(os.path.join(request["directory"], str(index)), "wb") as file:
                        file.write(verify.element_bytes(last.outputs[index]))
                answer: dict[str, object] = {}
            else:
                verify.apply_settings(request["settings"])
                with open(request["wrapper"], "rb") as file:
                    wrapper = file.read()
                constants = None
                if request["constants"]:
                    with open(request["constants"], "rb") as file:
                        constants = file.read()
                graph = loader.load(wrapper, request["library"], constants)
                last = verify.run(graph, request["inputs"], request["seed"], request["largest_index"])
                loaded = sorted(
                    name for name in sys.modules if name in ("torch._inductor.compile_fx", "torch._inductor.lowering")
                )
                answer = {"fingerprints": last.fingerprints, "mutated": last.mutated, "loaded": loaded}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
