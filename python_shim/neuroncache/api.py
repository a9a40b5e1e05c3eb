"""The public functions of the package."""

from __future__ import annotations

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
    the nearest stored key. For ``buckets``: the ``symbols`` that are padded with the places they stand for, the number of
    ``masks``, and which sizes must be equal (``unify``). None when there was no graph yet."""
    return counters.last()


def replan() -> None:
    """A safe point: the buckets of all graphs are planned anew from what was seen so far.

    A process by itself does so on its own. In a distributed program all ranks must have the same buckets: call it on all of
    them, between the same two steps.
    """
    from neuroncache.bucketing import report

    report.replan()
