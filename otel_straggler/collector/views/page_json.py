"""Bodies of ``/v1/run``, ``/v1/runs``, and ``/v1/scalars``; see docs/reference/http-api.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from otel_straggler.collector.views.answer import answer_of
from otel_straggler.collector.views.hang_json import hang_json
from otel_straggler.collector.views.heat import heat_json
from otel_straggler.collector.views.notes import notes_json
from otel_straggler.collector.views.numbers import number, rounded, seconds
from otel_straggler.collector.views.profile_json import profiles_json
from otel_straggler.collector.views.ranks import ShownRanks
from otel_straggler.collector.views.run_json import ordered, run_json, scalars_of
from otel_straggler.collector.views.timeline import Column
from otel_straggler.collector.views.verdict_json import (
    decisions_json,
    run_verdicts_part,
    verdicts_json,
)
from otel_straggler.collector.views.verdict_json import run_json as worlds_json
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.checkpoints import LastSave
from otel_straggler.model.alert import Maintenance
from otel_straggler.semconv import FORMAT_VERSION

Json: TypeAlias = dict[str, Any]


_INSECURE: Final = (
    "this collector is open to other machines without authentication (auth.insecure): anybody who "
    "reaches it can silence alerts and send telemetry"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseMeta:
    """What each response begins with. ``page_url``: where people find this collector's page; empty:
    at its address."""

    collector: str = ""
    version: str
    started_at_s: float | None = None
    is_insecure: bool = False
    page_url: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of the collector's settings, for the list of runs."""
        return (_INSECURE,) if self.is_insecure else ()

    def head(self, now_s: float) -> Json:
        return {
            "schema_version": FORMAT_VERSION,
            "collector": self.collector or None,
            "version": self.version,
            "started_at_s": None if self.started_at_s is None else round(self.started_at_s, 3),
            "now_s": round(now_s, 3),
            **({"is_insecure": True} if self.is_insecure else {}),
        }


def page_json(
    view: WorldView,
    meta: ResponseMeta,
    *,
    snapshot: str = "",
    next_look_s: float = 1.0,
    timeline: Sequence[Column] = (),
    now_s: float | None = None,
) -> Json:
    """The body of ``/v1/run``. Cost: O(R S); docs/reference/http-api.md has timings.

    Args:
        next_look_s: interval at which a page may poll.
        now_s: the current time, if the view is old.
    """
    now_s = view.now_s if now_s is None else now_s
    ranks = ShownRanks(view, max(now_s - view.now_s, 0.0))
    run_verdicts = run_verdicts_part(view.run_verdicts, group=view.group)
    shown, left_out = verdicts_json(
        run_verdicts, is_over=view.has_ended, attempt=view.attempt, clock_s=view.clock_s
    )
    hangs = []
    if view.hang is not None:
        hangs = [hang_json(view.group, view.hang, is_acknowledged=view.is_acknowledged)]
    return {
        **meta.head(now_s),
        "snapshot": snapshot,
        "next_look_s": next_look_s,
        "run": run_json(view),
        "answer": answer_of(view),
        **({"notes": notes} if (notes := notes_json(view)) else {}),
        "verdicts": shown,
        "verdicts_left_out": left_out,
        "hangs": hangs,
        **({} if view.checkpoint is None else {"checkpoint": _checkpoint(view.checkpoint)}),
        "alerts": list(view.alerts),
        "decisions": decisions_json(run_verdicts),
        "maintenance": [_maintenance(each) for each in view.maintenance],
        "ranks": ranks.as_json(),
        **_sections(view, ranks),
        "heat": heat_json(view, ranks.ranks),
        **_ledger(view),
        **({"profiles": profiles_json(view.profiles)} if view.profiles else {}),
        "timeline": {
            "first": timeline[0].seq if timeline else None,
            "last": timeline[-1].seq if timeline else None,
            "n_columns": len(timeline),
        },
    }


def runs_json(
    entries: Iterable[Json],
    meta: ResponseMeta,
    now_s: float,
    history_problem: str | None = None,
    problems: Sequence[str] = (),
) -> Json:
    """The body of ``/v1/runs``, the runs that need attention first."""
    return {
        **meta.head(now_s),
        "runs": ordered(entries),
        "history_problem": history_problem,
        "problems": [*problems],
        **({"page_url": meta.page_url} if meta.page_url else {}),
    }


def scalars_json(view: WorldView, meta: ResponseMeta, *, snapshot: str) -> Json:
    """The body of ``/v1/scalars``: some hundred bytes for any number of ranks."""
    return {
        **meta.head(view.now_s),
        "snapshot": snapshot,
        "run_id": view.run_id,
        "group": view.group,
        "scalars": scalars_of(view),
    }


def _checkpoint(save: LastSave) -> Json:
    """The last save; ``text`` is for people."""
    slowest = save.slowest
    return {
        "step": save.step,
        "at_s": seconds(save.at_s),
        "save_s": number(save.save_s),
        "blocking_s": number(save.blocking_s),
        "size_bytes": number(save.size_bytes),
        "ranks": save.n_ranks,
        "slowest_rank": None if slowest is None else slowest.rank,
        "slowest_ratio": None if slowest is None else number(slowest.ratio),
        "interval_s": number(save.interval_s or None),
        "mtbf_s": number(save.mtbf_s or None),
        "text": save.text,
    }


def _maintenance(each: Maintenance) -> Json:
    return {
        "node": each.node,
        "reason": each.reason,
        "by": each.by or None,
        "until_s": round(each.until_ns / 1e9, 3),
    }


def _sections(view: WorldView, ranks: ShownRanks) -> Json:
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
