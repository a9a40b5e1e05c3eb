"""The map from sizes to buckets in Python is the one in C++."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from neuroncache.bucketing.epochs import MAX_SIZE, BucketPlan, FamilyPlan

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "epochs.jsonl").read_text(encoding="utf-8").splitlines()
]
FAMILY = re.compile(
    r"family tile (\d+) floor (\d+) max (\d+|-) ratio (\d+)/(\d+) varies ([01]) buckets (\S+) name (.*)"
)
JOINT = re.compile(r"joint (\d+) (\d+) buckets (\S+)")


def answer_of(text: str, digest: str) -> tuple[str, dict[str, Any]]:
    """What the daemon answers for a plan with this text."""
    lines = text.splitlines()
    families: dict[str, Any] = {}
    joints = []
    for line in lines[3:]:
        if found := FAMILY.fullmatch(line):
            tile, floor, most, num, den, varies, buckets, name = found.groups()
            ends = [] if buckets == "-" else [int(end) for end in buckets.split(",")]
            maximum = None if most == "-" else int(most)
            beyond = {"base": 0, "ratio": [int(num), int(den)], "tile": int(tile), "max": maximum}
            families[name] = {"buckets": ends, "beyond": beyond, "floor": int(floor), "varies": varies == "1"}
        elif found := JOINT.fullmatch(line):
            names = list(families)
            pairs = [[int(side) for side in pair.split("x")] for pair in found[3].split(",")]
            joints.append({"families": [names[int(found[1])], names[int(found[2])]], "buckets": pairs})
    epoch = int(lines[2].split()[1])
    return lines[1].split()[1], {"epoch": epoch, "digest": digest, "families": families, "joint": joints}


def test_python_and_cpp_agree() -> None:
    compared = 0
    for case in CASES:
        program, answer = answer_of(case["text"], case["digest"])
        plan = BucketPlan.from_answer(program, answer)
        assert plan.text() == case["text"]
        names = list(answer["families"])
        for sizes, expected in case["maps"]:
            found = plan.buckets(dict(zip(names, sizes, strict=True)))
            assert [found[name] for name in names] == expected, (case["text"], sizes)
            compared += len(sizes)
    assert compared > 2000


def test_an_answer_that_was_changed_is_refused() -> None:
    case = next(case for case in CASES if re.search(r"buckets \d", case["text"]))
    program, answer = answer_of(case["text"], case["digest"])
    family = next(value for value in answer["families"].values() if value["buckets"])
    family["buckets"][-1] += 1
    with pytest.raises(ValueError, match="digest"):
        BucketPlan.from_answer(program, answer)
    del answer["epoch"]
    with pytest.raises(ValueError, match="incomplete"):
        BucketPlan.from_answer(program, answer)


def test_every_size_has_a_bucket_that_covers_it() -> None:
    plan = FamilyPlan(tile=128, floor=128, buckets=(128, 640))
    assert [plan.bucket(n) for n in (0, 1, 128, 129, 640, 641, 1025)] == [128, 128, 128, 640, 640, 1024, 1536]
    assert plan.bucket(MAX_SIZE) == MAX_SIZE
    assert plan.bucket(MAX_SIZE + 1) is None
    bounded = FamilyPlan(tile=128, floor=128, maximum=317)
    assert [bounded.bucket(n) for n in (1, 129, 257, 317, 318)] == [128, 256, 317, 317, None]
