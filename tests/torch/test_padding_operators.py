"""A part of PyTorch's operator and module databases; `python -m tests.torch.proof.operators` runs all of them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

# One of each family of rules.
NAMES = """
    add mul div.no_rounding_mode where clamp exp pow softmax log_softmax sum mean amax argmin prod var_mean any cumsum
    logsumexp sort topk gather scatter scatter_add index_select index_add index_put masked_fill tril flip roll cat stack
    split narrow select unsqueeze permute view expand mm bmm addmm einsum linalg.vector_norm
    nn.functional.linear nn.functional.embedding nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm
    nn.functional.scaled_dot_product_attention nn.functional.cross_entropy nn.functional.nll_loss nn.functional.conv1d
    nn.functional.conv2d nn.functional.avg_pool2d nn.functional.max_pool2d nn.functional.interpolate.nearest
    nn.functional.pad.constant nn.functional.pad.reflect nn.functional.dropout zeros_like full arange eye rand_like
""".split()
MODULES = [f"module nn.{name}" for name in "Linear BatchNorm1d Conv1d GRUCell".split()]


@pytest.mark.parametrize("job", [("operator", name) for name in NAMES + MODULES], ids=lambda job: job[1])
def test_operator(job: tuple[Any, ...], verdicts: Callable[..., Any]) -> None:
    result = verdicts(job)
    assert result["cases"], result.get("note", "the database has no sample")
    for case in result["cases"]:
        assert case["status"] in ("bucketed", "refused", "skipped"), case
        assert case["status"] == "bucketed" or case["reason"], case


@pytest.mark.parametrize("job", [("operator", NAMES[0])], ids=["core"])
def test_most_core_operators_are_bucketed(job: tuple[Any, ...], verdicts: Callable[..., Any]) -> None:
    counts: collections.Counter[str] = collections.Counter()
    for name in NAMES:
        cases = verdicts(("operator", name))["cases"]
        counts.update(case["status"] for case in cases if case["core"])
    total = sum(counts[status] for status in ("bucketed", "refused"))
    assert counts["bucketed"] >= 0.85 * total, counts
