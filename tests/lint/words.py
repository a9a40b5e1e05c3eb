"""Words that must not be in the tree: unfinished work, private paths, hosts that only one machine knows."""

from __future__ import annotations

import re

import tree

# Written in pieces, so that this file passes its own check.
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK", "TB" + "D"]
PHRASES = [
    "not " + "implemented",
    "for " + "now",
    "NotImplemented" + "Error",
    "place" + "holder for",
    "/wo" + "rk/",
    "/tmp/" + "nc/",
    "/tmp/" + "venv",
    "sha" + "red/design",
    "sha" + "red/facts",
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "deb.debian" + ".org",
]
PATTERN = re.compile(
    "|".join(
        [rf"\b{word}\b" for word in UNFINISHED] + [rf"(?<![\w-])(?i:{re.escape(phrase)})(?!\w)" for phrase in PHRASES]
    )
)
TEXT = (".cpp", ".hpp", ".py", ".md", ".txt", ".toml", ".json", ".yaml", ".1", ".service", ".socket", "x", ".ci/run")


def main() -> None:
    problems: list[str] = []
    names = tree.matching(*TEXT)
    for name in names:
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            match = PATTERN.search(line)
            if match:
                problems.append(f"{name}:{number}: '{match.group()}' must not be in the tree: {line.strip()}")
    tree.finish("words", problems, len(names))


main()
