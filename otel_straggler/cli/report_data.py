"""What a report embeds in its page, within a budget: picture, timelines, the ranks that matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from otel_straggler.cli.report_source import Pictures
from otel_straggler.errors import InputError

Json = dict[str, Any]
MOST_TIMELINE_BYTES: Final = 12 * 1024 * 1024
"""Of all sections together, as they stand in the file."""
WORST_RANKS: Final = 50
MOST_FLAGGED: Final = 50
RANK_COLUMNS: Final = 120
"""Windows in the history of one rank; the timelines have more."""


def report_data(pictures: Pictures, chosen: Json, picture: Json) -> Json:
    """What stands in ``straggler-data``; ``left_out`` says what had no room: names of sections
    without a timeline, and how many ranks have no details.

    Args:
        chosen: entry of the run in ``/v1/runs``.
        picture: of the run and group.
    """
    run_id, group = picture["run"]["run_id"], picture["run"]["group"]
    timelines, sections = _timelines(pictures, picture, run_id, group)
    ranks = {}
    for rank in ranks_of_interest(picture):
        try:
            ranks[str(rank)] = _shortened(pictures.rank(run_id, group, rank))
        except InputError:  # it has left the run meanwhile
            continue
    return {
        "runs": {**pictures.runs(), "runs": [chosen]},
        "run": picture,
        "timelines": timelines,
        "ranks": ranks,
        "left_out": {"sections": sections, "ranks": len(picture["ranks"]["rank"]) - len(ranks)},
    }


def ranks_of_interest(picture: Json) -> list[int]:
    """Those that verdicts and the answer name, then the slowest of the newest window."""
    flagged = list(dict.fromkeys(_flagged(picture)))[:MOST_FLAGGED]
    ranks, slowdowns = picture["ranks"]["rank"], picture["slowdowns"]["overall"]
    known = set(ranks)
    worst = sorted(
        (rank for rank in zip(ranks, slowdowns, strict=True) if rank[1] is not None),
        key=lambda told: -told[1],
    )
    chosen = [*flagged, *(rank for rank, _ in worst[:WORST_RANKS])]
    return [rank for rank in dict.fromkeys(chosen) if rank in known]


def _flagged(picture: Json) -> Iterator[int]:
    if picture["answer"]["rank"] is not None:
        yield picture["answer"]["rank"]
    for hang in picture["hangs"]:
        yield from hang["culprits"]
    for verdict in picture["verdicts"]:
        if verdict["stands"] and verdict["rank"] is not None:
            yield verdict["rank"]


def _timelines(
    pictures: Pictures, picture: Json, run_id: str, group: str
) -> tuple[dict[str, Json], list[str]]:
    """By section, all together first; and the sections for which there was no room."""
    if not picture["timeline"]["n_columns"]:
        return {}, []
    timelines: dict[str, Json] = {}
    left_out: list[str] = []
    room = MOST_TIMELINE_BYTES
    for section in ("", *_dearest_first(picture)):
        # All are of one size: what does not fit is not asked for.
        size = max((len(each["values"]) for each in timelines.values()), default=0)
        if size > room:
            left_out.append(section)
            continue
        timelines[section] = pictures.timeline(run_id, group, section)
        room -= len(timelines[section]["values"])
    return timelines, left_out


def _dearest_first(picture: Json) -> list[str]:
    """Sections in which somebody is called slow, then as they run."""
    called = [verdict["section"] for verdict in picture["verdicts"] if verdict["stands"]]
    names = [section["name"] for section in picture["sections"]]
    return [name for name in dict.fromkeys([*called, *names]) if name in names]


def _shortened(rank: Json) -> Json:
    history = rank["history"]
    return rank | {
        "history": {
            **history,
            "columns": history["columns"][-RANK_COLUMNS:],
            "slowdowns": [row[-RANK_COLUMNS:] for row in history["slowdowns"]],
        }
    }
