"""Every C++ source is built and every test runs: each .cpp is named by a CMakeLists.txt, each Python test is collected."""

from __future__ import annotations

import re
from pathlib import PurePath

import tree


def main() -> None:
    problems: list[str] = []
    lists = {str(PurePath(name).parent): tree.text(name) for name in tree.matching("CMakeLists.txt")}
    sources = tree.matching(".cpp")
    for name in sources:
        path = PurePath(name)
        named = False
        for folder in path.parents:
            listing = lists.get(str(folder))
            inner = str(path.relative_to(folder)) if str(folder) != "." else name
            if listing and re.search(rf"(?<![\w/]){re.escape(inner)}(?!\w)", listing):
                named = True
        if not named and name.startswith(("base/", "cache/", "bucketing/", "client/", "daemon/", "tests/")):
            problems.append(f"{name}: no CMakeLists.txt names it, so nothing builds it")
    python = [n for n in tree.matching(".py", under="tests/") if re.search(r"^def test_", tree.text(n), re.MULTILINE)]
    for name in python:
        if not PurePath(name).name.startswith("test_"):
            problems.append(f"{name}: holds tests, but pytest collects only files named test_*.py")
        if not name.startswith(("tests/integration/", "tests/torch/", "tests/neuron/")):
            problems.append(f"{name}: holds tests outside the folders that ./x test runs")
    tree.finish("registered", problems, len(sources) + len(python))


main()
