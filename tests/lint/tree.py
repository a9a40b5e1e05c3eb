"""What the lint checks share: the files of the tree, and how a check ends."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("base", "cache", "bucketing", "client", "daemon")


@cache
def files() -> tuple[str, ...]:
    """Every file that is tracked or could be, relative to the root, sorted."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(sorted(name for name in set(listing.splitlines()) if (ROOT / name).is_file()))


def matching(*suffixes: str, under: str = "") -> list[str]:
    return [name for name in files() if name.endswith(suffixes) and name.startswith(under)]


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(errors="replace")


def without_comments(source: str) -> str:
    """C++ without its comments, line numbers kept."""
    pattern = r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/'

    def keep(match: re.Match[str]) -> str:
        found = match.group()
        return found if found.startswith('"') else "\n" * found.count("\n")

    return re.sub(pattern, keep, source, flags=re.DOTALL)


def finish(check: str, problems: list[str], checked: int) -> None:
    """Prints the outcome and ends the process."""
    if checked == 0:
        problems.append(f"{check} found nothing to check")
    for problem in problems:
        print(problem)
    print(f"{check}: {checked} checked, {len(problems)} problems")
    sys.exit(1 if problems else 0)
