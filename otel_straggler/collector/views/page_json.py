"""The picture of one world, as ``/v1/run`` and a report have it; docs/reference/http-api.md says
what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from otel_straggler.collector.views.answer import answer_of
from otel_straggler.collector.views.hang_json import hang_json
from otel_straggler.collector.views.heat import heat_json
from otel_straggler.collector.views.numbers import rounded
from otel_straggler.collector.views.ranks import ShownRanks
from otel_straggler.collector.views.run_json import run_json
from otel_straggler.collector.views.timeline import Column
from otel_straggler.collector.views.verdict_json import (
    decisions_json,
    run_verdicts_part,
    verdicts_json,
)
from otel_straggler.collector.views.verdict_json import run_json as worlds_json
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.alert import Maintenance
from otel_straggler.semconv import FORMAT_VERSION

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseMeta:
    """Who makes pictures.

    Attributes:
        collector: its name; empty for a report.
        version: of this package.
        started_at_s: another one means that another process answers.
    """

    collector: str = ""
    version: str
    started_at_s: float | None = None

    def head(self, now_s: float) -> Json:
        """What every answer begins with."""
        return {
            "schema_version": FORMAT_VERSION,
            "collector": self.collector or None,
            "version": self.version,
            "started_at_s": None if self.started_at_s is None else round(self.started_at_s, 3),
            "now_s": round(now_s, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEnds:
    """Which columns ``/v1/timeline`` has; None and 0 if there are none."""

    first: int | None = None
    last: int | None = None
    n_columns: int = 0

    @classmethod
    def of(cls, columns: Sequence[Column]) -> TimelineEnds:
        if not columns:
            return cls()
        return cls(first=columns[0].seq, last=columns[-1].seq, n_columns=len(columns))


def page_json(
    view: WorldView,
    maker: ResponseMeta,
    *,
    snapshot: str = "",
    next_look_s: float = 1.0,
    timeline: TimelineEnds | None = None,
    now_s: float | None = None,
) -> Json:
    """The whole picture. Cost: O(R S); see docs/reference/http-api.md for how long that takes.

    Args:
        view: what is known.
        maker: who says it.
        snapshot: changes when the content does.
        next_look_s: how often a page may ask for it.
        timeline: which columns there are.
        now_s: when this is said, of a run that was seen last long ago.
    """
    now_s = view.now_s if now_s is None else now_s
    ranks = ShownRanks(view, later_s=max(now_s - view.now_s, 0.0))
    shown, left_out = verdicts_json(
        view.current,
        view.changes,
        view.run_verdicts.silenced,
        is_over=view.has_ended,
        attempt=view.attempt,
        clock_s=view.clock_s,
    )
    ends = timeline or TimelineEnds()
    return {
        **maker.head(now_s),
        "snapshot": snapshot,
        "next_look_s": next_look_s,
        "run": run_json(view),
        "answer": answer_of(view),
        "verdicts": shown,
        "verdicts_left_out": left_out,
        "hangs": _hangs(view),
        "alerts": list(view.alerts),
        "decisions": _decisions(view),
        "maintenance": [_maintenance(each) for each in view.maintenance],
        "ranks": ranks.as_json(),
        **_sections(view, ranks),
        "heat": heat_json(view, ranks.ranks),
        **_ledger(view),
        "timeline": {"first": ends.first, "last": ends.last, "n_columns": ends.n_columns},
    }


def _hangs(view: WorldView) -> list[Json]:
    if view.hang is None:
        return []
    return [hang_json(view.group, view.hang, is_acknowledged=view.is_acknowledged)]


def _decisions(view: WorldView) -> list[Json]:
    of_group = run_verdicts_part(
        view.run_verdicts, group=view.group, rank=None, is_its_node=lambda _: True
    )
    return decisions_json(of_group)


def _maintenance(each: Maintenance) -> Json:
    return {
        "node": each.node,
        "reason": each.reason,
        "by": each.by or None,
        "until_s": round(each.until_ns / 1e9, 3),
    }


def _sections(view: WorldView, ranks: ShownRanks) -> Json:
    """What sections there are, and how slow every rank is in each."""
    table = view.table
    if table is None:
        nothing: list[float | None] = [None] * len(ranks)
        return {"sections": [], "slowdowns": {"overall": nothing, "by_section": []}}
    result = table.slowdowns
    return {
        "sections": [{"name": s.name, "kind": s.kind} for s in table.sections],
        "slowdowns": {
            "overall": rounded(ranks.of_table(result.overall)),
            "by_section": [
                rounded(ranks.of_table(result.by_section[:, at]))
                for at in range(len(table.sections))
            ],
        },
    }


def _ledger(view: WorldView) -> Json:
    reported = worlds_json([] if view.world is None else [view.world], None)
    return {"ledger": reported["ledger"], "waits": reported["waits"]}
