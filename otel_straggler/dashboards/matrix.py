"""Where in the parallel layout the time goes: the pattern names the cause."""

from __future__ import annotations

from otel_straggler import semconv
from otel_straggler.dashboards.page import one, page, run_variables
from otel_straggler.dashboards.panels import (
    PLAIN,
    RUN_SLOWDOWNS,
    SLOWDOWNS,
    Panel,
    link,
    matrix,
    number,
    timeline,
)
from otel_straggler.dashboards.queries import OF_RUN, RANK, RUN, highest, is_chosen, newest, series

_WORLD = f"{OF_RUN}, {is_chosen('group')}"
_MAX_CELLS = 2_048
_MAX_FLAGGED = 30


def render() -> str:
    return page(
        "matrix",
        "Matrix",
        [*run_variables(), one("group", series(semconv.RUN_STATE))],
        [
            ("Data ranks and pipeline stages", [*_shares(), _matrix()]),
            ("Flagged over time", _flagged()),
        ],
    )


def _matrix() -> Panel:
    cells = newest(semconv.WORKER_SLOWDOWN, "data_rank, pipeline_stage", _WORLD)
    return matrix(
        1,
        "Slowdown by data rank and pipeline stage",
        "Slowdown of the run if only this cell were as it is; the 2,048 slowest. One hot cell: a "
        "bad worker, drain it. A hot row: that stage has too much work, move layers. "
        "Heat all over: uneven sequences or pauses of the garbage collector.",
        ("pipeline_stage", "data_rank"),
        f"topk({_MAX_CELLS}, {cells})",
        RUN_SLOWDOWNS,
        "No cells: the run is too young, or its ranks do not report their place in the layout "
        "(set_topology).",
    )


def _shares() -> list[Panel]:
    return [
        number(
            2,
            "Loss that the worst 3 % of workers cause",
            "100 %: few workers are to blame, so replace them. Near 0: replacing workers will "
            "not help.",
            "percentunit",
            _share(semconv.RUN_M_W),
            PLAIN,
            span=8,
            empty="No layout known",
        ),
        number(
            3,
            "Loss that the last stage causes",
            "100 %: the last pipeline stage has too much work, so move layers. Near 0: moving "
            "layers away from it will not help. Clamped to 0 to 100 %: the reported value may be "
            "above, where the other stages take less than the mean of all.",
            "percentunit",
            _share(semconv.RUN_M_S),
            PLAIN,
            span=8,
            empty="No layout known",
        ),
        number(
            4,
            "Slowdown of the run",
            "What all cells together cost: time of the run / time if all were equal. Below 1.05 "
            "leave it.",
            "short",
            newest(semconv.RUN_SLOWDOWN, RUN, _WORLD),
            RUN_SLOWDOWNS,
            span=8,
        ),
    ]


def _share(metric: semconv.Metric) -> str:
    """A part of the loss. Where work is uneven otherwise, mending one part may win more than all is
    worth, or make it worse: nobody can act on how far beyond."""
    return f"clamp({newest(metric, RUN, _WORLD)}, 0, 1)"


def _flagged() -> list[Panel]:
    return [
        timeline(
            5,
            "Flagged ranks",
            "How slow ranks are while a confirmed verdict stands, the 30 slowest of the range. "
            "Several that begin at once have one cause: look at what they share.",
            "short",
            "rank {{rank}} {{node}}",
            _slowest("rank", RANK),
            steps=SLOWDOWNS,
            empty="No rank had a slow verdict in this range.",
            links=[link("Rank ${__field.labels.rank}", "rank", "job_name", "run_id", "rank")],
        ),
        timeline(
            6,
            "Flagged hosts",
            "How slow hosts are while a confirmed verdict stands, the 30 slowest of the range. "
            "Drain the host if it stays; its ranks need not be looked at one by one.",
            "short",
            "{{node}}",
            _slowest("host", f"{RUN}, node"),
            steps=SLOWDOWNS,
            empty="No host had a slow verdict in this range.",
        ),
    ]


def _slowest(scope: str, by: str) -> str:
    """By the verdicts' series, which only those have who are called slow: to look through whether
    each of 10,000 ranks straggles takes Prometheus seconds. Rounded, an answer is half as long."""
    chosen = f'{_WORLD}, scope="{scope}"'
    return f"round({highest(semconv.VERDICT_SLOWDOWN, by, chosen, _MAX_FLAGGED)}, 0.01)"
