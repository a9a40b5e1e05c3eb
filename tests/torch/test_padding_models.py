"""Models with batch and length dynamic: loss, outputs, all gradients and buffers of padded runs against exact ones.

`python -m tests.torch.proof.models` is the long form: more sizes, both decompositions, evaluation as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proof.models import MODELS

EVALUATED = ["bert", "cnn"]
MAY_REFUSE = {"unet_spatial", "lstm_mkldnn"}


@pytest.mark.parametrize("job", [("model", name, True) for name in MODELS], ids=lambda job: job[1])
def test_training(job: tuple[Any, ...], verdicts: Callable[..., Any]) -> None:
    _judge(job, verdicts(job))


@pytest.mark.parametrize("job", [("model", name, False) for name in EVALUATED], ids=lambda job: job[1])
def test_evaluation(job: tuple[Any, ...], verdicts: Callable[..., Any]) -> None:
    _judge(job, verdicts(job))


def _judge(job: tuple[Any, ...], verdict: Any) -> None:
    allowed = ("bucketed", "refused") if job[1] in MAY_REFUSE else ("bucketed",)
    assert verdict.status in allowed, verdict
