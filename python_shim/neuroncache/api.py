"""The public functions of the package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from neuroncache import config, counters


def enable() -> None:
    """Switches the cache on for the graphs that follow, and puts the hooks in place where they are not yet.

    Needed only after `disable`, or where automatic activation is off. ``NEURONCACHE=0`` is overridden by this.
    """
    import torch  # noqa: F401 (the hooks need it, and who calls this is about to use it)

    from neuroncache import hooks

    config.set("enabled", True)
    hooks.install()


def disable() -> None:
    """Leaves the graphs that follow to stock ``torch.compile``. What is compiled already stays in use."""
    config.set("enabled", False)


def stats() -> dict[str, Any]:
    """What this process did so far.

    ``graphs``: graphs that ``torch.compile`` handed over; ``entries``: of them, those that the cache served or built.
    ``builds``, ``hits``, ``waits``, ``failures``, ``bypasses``: artifacts, by where they came from (also per ``kinds``).
    ``refusals``: what was left to stock torch, each with ``op``, ``reason`` and ``source``.
    ``buckets`` and ``padding_waste``: bucket vectors in use, and the share of padding in what was computed;
    ``background_builds``: those that were built while another one served; ``verified`` and ``mismatches``: padded calls that were
    compared to exact ones, and those that differed (there are none, or a rule of ours is wrong: please report it).
    ``bypass_reasons``, ``errors`` (faults that were caught) and ``seconds`` (wall time by phase) help to find a cause.
    """
    return counters.snapshot()


def explain_last() -> dict[str, Any] | None:
    """The graph that was finished last: ``outcome`` (``hit``, ``built``, ``buckets``, ``exact``: one graph per shape, ``stock``),
    ``reason``, and in ``steps`` each look-up with its key, label, outcome, seconds and, for a miss, the daemon's account of
    the nearest stored key. For ``buckets``: the ``function``, the ``symbols`` that are padded with the places they stand for
    (``L['x']:1`` is dimension 1 of the argument x), the number of ``masks``, which sizes must be equal (``unify``), and, as of now,
    the ``buckets`` in use with their calls, the ``epoch`` of their plan (0: none yet, sizes are rounded up on a ladder), and why
    nothing is padded any more (``quarantined``). None when there was no graph yet."""
    return counters.last()


def replan() -> None:
    """A safe point: the buckets of all graphs are planned anew from what was seen so far.

    A process by itself does so on its own. In a distributed program all ranks must have the same buckets: call it on all of
    them, between the same two steps.
    """
    from neuroncache.bucketing import report

    report.replan()


def register_padding_rule(
    op: Any,
    kind: str = "along",
    *,
    gives: str = "any",
    outputs: Sequence[Any] | Mapping[str, Any] | None = None,
    needs: Mapping[int | str, str] | None = None,
    sums: Sequence[tuple[int | str, int]] | None = None,
    samples: Iterable[Any] | None = None,
) -> None:
    """Declares how an operator of your own (``torch.library``, an NKI kernel for one) behaves on padded tensors.

    Without a rule, graphs in which such an operator meets padding are not padded. A rule is believed: test it with `samples`
    (as `check_padding_rule` does), which raises before anything is declared. Graphs with such operators are compared with
    unpadded runs on your data at first, too (setting ``verify``). Call it before the graphs are compiled.

    op: what ``torch.library.custom_op`` returned, ``torch.ops.mylib.swish``, or ``"mylib::swish"``.

    kind: ``"pointwise"``: the tensor arguments broadcast, and each element of the result depends on those at its place
    only. ``"along"``: see `outputs`.

    outputs: one entry for each result; ``None`` for one that is no tensor, else a list with an entry for each of its dimensions
    (or a mapping with this list as ``follows``, and a ``gives`` of its own). An entry names the dimensions of arguments
    that this one follows, as pairs ``(argument, dimension)``: it has their size, and what lies at position n of it depends on
    these arguments only by what lies at their position n, and not on the size. ``None``: it follows nothing. Arguments are given
    by position or name.

    sums: pairs of dimensions that are summed up: zeros beyond the true size change nothing.

    needs: what the padding of an argument must hold: ``"any"``, ``"finite"`` (when left out) or ``"zero"`` (summed arguments).

    gives: what a result holds where all that it depends on is finite: ``"any"``, ``"finite"``, ``"nonnegative"``, ``"positive"``, or
    ``"zero"``: finite, and zero where everything that it depends on is zero. The more it says, the fewer masks are needed.

    A matrix product, and a rotation of rows by angles per row::

        register_padding_rule("mylib::project", outputs=[[(0, 0), (1, 1)]], sums=[(0, 1), (1, 0)], gives="zero")
        register_padding_rule("mylib::rotate", outputs=[[[("x", 0), ("angles", 0)], None]], gives="finite")

    Raises `neuroncache.errors.PaddingRuleError`, with what is wrong.
    """
    from neuroncache.bucketing import rules

    rules.register(op, kind, gives=gives, outputs=outputs, needs=needs, sums=sums, samples=samples)


def check_padding_rule(op: Any, samples: Iterable[Any]) -> None:
    """Tests the rule that was declared for an operator: raises `neuroncache.errors.PaddingRuleError` where it is wrong.

    samples: argument tuples (or pairs of a tuple and a dict of keyword arguments), without padding. Each is run as it is and
    with more of every dimension that may be padded, which holds the worst that the rule allows: NaN, infinite, huge and random
    numbers, zeros. The true part of the results and of the gradients must not change, and padding must hold what is claimed.
    """
    from neuroncache.bucketing import rules

    rules.check_rule(op, samples)
