"""Low scores that are no fault of the rank: who waits for a slow rank takes long where it waits.

With DDP gradients are averaged inside backward. A rank that is slow in forward comes last and waits
least there, so all others look slow beside it. Where a verdict has named that rank, the others
are told apart, so that the first red line is not about a victim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from otel_straggler.cli.report_table import printable, rank_ranges
from otel_straggler.cli.run_over import is_over
from otel_straggler.cli.verdict_lines import current_verdicts
from otel_straggler.semconv import LISTED_KINDS

Json = Mapping[str, Any]

_CALLED = ("confirmed", "flapping")
_FASTEST = 0.999
_MOST_WAIT = 0.5
_NAME = 48


def without_victims(run: Json, window: Json) -> tuple[dict[str, Any], list[Text]]:
    """The window with the victims of called ranks no longer listed, and a line for each section
    in which there are some. Nothing changes where no rank is called slow."""
    called = called_ranks(run, window)
    waited_in = {
        name: waiting
        for name, kind in window["sections"].items()
        if called and kind in LISTED_KINDS and (waiting := _waiting(window, name, called))
    }
    if not waited_in:
        return dict(window), []
    kept = [
        one for one in window["stragglers"] if _key(one) not in waited_in.get(one["section"], ())
    ]
    has_ended = is_over(run, window["group"])
    lines = [
        _line(window, name, keys, called, has_ended=has_ended) for name, keys in waited_in.items()
    ]
    return {**window, "stragglers": kept}, lines


def called_ranks(run: Json, window: Json) -> frozenset[str]:
    """Keys of the ranks that a verdict which stands names, by themselves or by their node."""
    keys: set[str] = set()
    for verdict in current_verdicts(run):
        if verdict["state"] in _CALLED and verdict["group"] == window["group"]:
            if verdict["scope"] == "rank":
                keys.add(_key(verdict))
            elif verdict["scope"] == "host":
                ranks = window["ranks"].items()
                keys.update(key for key, rank in ranks if rank["node"] == verdict["node"])
    return frozenset(keys & set(window["ranks"]))


def no_wait_line(window: Json) -> Iterator[Text]:
    """What scores cannot show where no section says that ranks wait in it."""
    has_gpu = any(score is not None for score in window["gpu_relative_scores"].values())
    kinds = window["sections"].values()
    if len(window["ranks"]) > 1 and "compute" in kinds and "wait" not in kinds and not has_gpu:
        yield Text(
            "no section of kind wait: a rank that is slow where all wait for each other (with DDP: "
            "in backward) looks like the others",
            style="dim",
        )


def _waiting(window: Json, name: str, called: frozenset[str]) -> frozenset[str]:
    """Who waits in a section: most ranks that are not called, where a called one is the fastest."""
    scores = {k: s for k, s in window["section_relative_scores"][name].items() if s is not None}
    fastest = {key for key, score in scores.items() if score > _FASTEST}
    others = scores.keys() - called
    listed = {_key(one) for one in window["stragglers"] if one["section"] == name} & others
    if not fastest or not fastest <= called or len(listed) <= _MOST_WAIT * len(others):
        return frozenset()
    return frozenset(listed)


def _line(
    window: Json, name: str, waiting: frozenset[str], called: frozenset[str], *, has_ended: bool
) -> Text:
    scores = window["section_relative_scores"][name]
    fastest = [key for key in called if (scores.get(key) or 0.0) > _FASTEST]
    plural = len(waiting) != 1
    take = "took" if has_ended else "take" if plural else "takes"
    may_be = "may have been waiting" if has_ended else "may be waiting"
    return Text(
        f"{_ranks(window, waiting)} {take} longer than "
        f"{_ranks(window, frozenset(fastest))} in {printable(name, _NAME)}: "
        f"{'they' if plural else 'it'} {may_be} there for the slow rank"
    )


def _ranks(window: Json, keys: frozenset[str]) -> str:
    group = f"{printable(window['group'], _NAME)}/" if window["group"] else ""
    numbers = rank_ranges(int(key.rpartition("/")[2]) for key in keys)
    return f"rank{'s' * (len(keys) != 1)} {group}{numbers}"


def _key(who: Json) -> str:
    return f"{who['group']}/{who['rank']}" if who.get("group") else str(who["rank"])
