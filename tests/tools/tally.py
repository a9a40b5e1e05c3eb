"""What `./x` counts while it tests, and the reports that it counts from."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, suite: str, passed: int, failed: int, skips: list[str], seconds: float) -> None:
        """Counts one suite. A suite without a test, and a skip without a reason, are failures."""
        if passed + failed + len(skips) == 0:
            failed += 1
            self.problems.append(f"{suite}: ran no test")
        for reason in skips:
            if not reason.strip():
                failed += 1
                self.problems.append(f"{suite}: a test was skipped without a reason")
        self.passed += passed
        self.failed += failed
        self.skipped += len(skips)
        text = f"  {'FAIL' if failed else 'ok  '} {suite}: {passed} passed, {failed} failed"
        text += f", {len(skips)} skipped" if skips else ""
        print(f"{text} ({seconds:.1f} s)", flush=True)
        for reason in sorted(set(skips)):
            print(f"         skipped: {reason.strip() or '(no reason)'}", flush=True)

    def one(self, suite: str, problem: str | None, seconds: float) -> None:
        """A suite that is one check."""
        self.add(suite, 0 if problem else 1, 1 if problem else 0, [], seconds)
        if problem:
            self.problems.append(f"{suite}: {problem}")


def read_junit(path: Path) -> tuple[int, int, list[str]]:
    """Passed, failed and the reasons of the skipped, from GoogleTest's or pytest's report."""
    passed = failed = 0
    skips: list[str] = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif skip is not None:
            reason = skip.get("message") or skip.text or ""
            skips.append(re.sub(r"^\S+:\d+\n", "", reason))  # GoogleTest puts the place in front
        elif case.get("status") != "notrun":
            passed += 1
    return passed, failed, skips
