"""Where in the parallel layout the time goes: the pattern names the cause."""

from __future__ import annotations

from typing import Final

from otel_straggler import semconv
from otel_straggler.dashboards import panels as p
from otel_straggler.dashboards import queries as q
from otel_straggler.dashboards.page import one, page, run_variables

_WORLD = f"{q.OF_RUN}, {q.is_chosen('group')}"
_MAX_CELLS = 2_048
_MAX_FLAGGED = 30


_TEXT: Final = p.texts(
    """
1 Slowdown by data rank and pipeline stage. Slowdown of the run if only this cell were as it is; the
2,048 slowest. One hot cell: a bad worker, drain it. A hot row: that stage has too much work, move
layers. Heat all over: uneven sequences or pauses of the garbage collector.
Empty: No cells: the run is too young, or its ranks do not report their place in the layout
(set_topology).

2 Loss that the worst 3 % of workers cause [percentunit]. 100 %: few workers are to blame, so
replace them. Near 0: replacing workers will not help.
Empty: No layout known

3 Loss that the last stage causes [percentunit]. 100 %: the last pipeline stage has too much work,
so move layers. Near 0: moving layers away from it will not help. Clamped to 0 to 100 %: the
reported value may be above, where the other stages take less than the mean of all.
Empty: No layout known

4 Slowdown of the run. What all cells together cost: time of the run / time if all were equal. Below
1.05 leave it.

5 Flagged ranks. How slow ranks are while a confirmed verdict stands, the 30 slowest of the range.
Several that begin at once have one cause: look at what they share.
Empty: No rank had a slow verdict in this range.

6 Flagged hosts. How slow hosts are while a confirmed verdict stands, the 30 slowest of the range.
Drain the host if it stays; its ranks need not be looked at one by one.
Empty: No host had a slow verdict in this range.
"""
)


def render() -> str:
    return page(
        "matrix",
        "Matrix",
        [*run_variables(), one("group", q.series(semconv.RUN_STATE))],
        [
            ("Data ranks and pipeline stages", [*_shares(), _matrix()]),
            ("Flagged over time", _flagged()),
        ],
    )


def _matrix() -> p.Panel:
    cells = q.newest(semconv.WORKER_SLOWDOWN, "data_rank, pipeline_stage", _WORLD)
    return p.matrix(
        _TEXT[1], ("pipeline_stage", "data_rank"), f"topk({_MAX_CELLS}, {cells})", p.RUN_SLOWDOWNS,
        p.next_steps("StragglerRunSlow", is_table=True, of_run=True),
    )  # fmt: skip


def _shares() -> list[p.Panel]:
    return [
        p.number(_TEXT[2], _share(semconv.RUN_M_W), span=8),
        p.number(_TEXT[3], _share(semconv.RUN_M_S), span=8),
        p.number(_TEXT[4], q.newest(semconv.RUN_SLOWDOWN, q.RUN, _WORLD), p.RUN_SLOWDOWNS, span=8),
    ]


def _share(metric: semconv.Metric) -> str:
    """A share of the loss. Where work is uneven otherwise, fixing one part may win more than all is
    worth, or make it worse: clamped, as nobody can act on how far."""
    return f"clamp({q.newest(metric, q.RUN, _WORLD)}, 0, 1)"


def _flagged() -> list[p.Panel]:
    return [
        p.timeline(
            _TEXT[5],
            "rank {{rank}} {{node}}",
            _slowest("rank", q.RANK),
            steps=p.SLOWDOWNS,
            links=[
                p.link("Rank ${__field.labels.rank}", "rank", "job_name", "run_id", "rank"),
                *p.next_steps("StragglerRankStraggling", rank=True),
            ],
        ),
        p.timeline(
            _TEXT[6],
            "{{node}}",
            _slowest("host", f"{q.RUN}, node"),
            steps=p.SLOWDOWNS,
            links=p.next_steps("StragglerHostSlow"),
        ),
    ]


def _slowest(scope: str, by: str) -> str:
    """From the verdicts' series, which only slow subjects have: checking each of 10,000 ranks takes
    Prometheus seconds. Rounded, an answer is half as long."""
    chosen = f'{_WORLD}, scope="{scope}"'
    return f"round({q.highest(semconv.VERDICT_SLOWDOWN, by, chosen, _MAX_FLAGGED)}, 0.01)"
