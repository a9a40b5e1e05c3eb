"""Files stay short: no source above 600 lines, no header above 250. Prints the median of each kind."""

from __future__ import annotations

import statistics

import tree

LIMITS = {".cpp": 600, ".hpp": 250, ".py": 600, "x": 600}


def main() -> None:
    problems = []
    lengths: dict[str, list[int]] = {kind: [] for kind in LIMITS}
    for name in tree.files():
        kind = next((kind for kind in LIMITS if name == kind or (kind.startswith(".") and name.endswith(kind))), None)
        if kind is None:
            continue
        lines = tree.text(name).count("\n")
        lengths[kind].append(lines)
        if lines > LIMITS[kind]:
            problems.append(f"{name}: {lines} lines; the limit is {LIMITS[kind]}, split it by what it does")
    for kind, counts in lengths.items():
        if counts and kind != "x":
            print(f"{kind}: {len(counts)} files, median {statistics.median(counts):.0f} lines, longest {max(counts)}")
    tree.finish("lengths", problems, sum(len(counts) for counts in lengths.values()))


main()
