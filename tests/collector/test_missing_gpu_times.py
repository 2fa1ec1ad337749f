"""GPU times on the page of a live collector: those that never come, and kernels of few steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.encode_metrics import encode_heartbeat, encode_kernel_times
from otel_straggler.simulate.auxiliary_metrics import KernelReports
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate
from otel_straggler.simulate.writers import encode_requests, resource_of

SLOW = 3
N_RANKS, N_STEPS = 8, 160
Json = dict[str, Any]


def plan(tier: str, fault: str = f"data:0.6@rank{SLOW}:step60", **changes: Any) -> RunPlan:
    timing, _, every = tier.partition(", 1 in ")
    missing = {} if timing == "off" else {"gpu_missing": 1.0, "gpu_sample_every": int(every or 1)}
    return RunPlan(
        **{
            "layout": Layout.parse(f"dp{N_RANKS}"),
            "steps": N_STEPS,
            "timing": "synchronised",
            "spikes": 0.0,
            "report_collectives": True,
            "report_hardware": True,
            "faults": (Fault.parse(fault),),
            "gpu_timing": timing,
            "run_id": tier.replace(", ", "-").replace(" ", "-"),
            **missing,
            **changes,
        }
    )


def end(
    live: Any, sources: tuple[Source, ...], tier: str, counts: Callable[[int], dict[str, int]]
) -> None:
    """The last heartbeat of all ranks, which says what timed them and what is missing."""
    for source in sources:
        now_s = time.time()
        beat = Heartbeat(
            source=source, sent_at_s=now_s, progress_at_s=now_s, step=N_STEPS - 1,
            finished_at_s=now_s, outcome="ok", dropped=counts(source.rank),
        )  # fmt: skip
        reason = "no_marks" if source.rank == 1 else "asked"
        info = {semconv.GPU_TIMING_TIER: tier, semconv.GPU_TIMING_REASON: reason}
        body = encode_heartbeat(beat, resource=resource_of(source), info=info, started_at_s=1.0)
        live.post(body, "metrics")


def send(live: Any, made: RunPlan, tier: str, counts: Callable[[int], dict[str, int]]) -> None:
    run = generate(made)
    for rows in run.batches():
        for body in encode_requests(rows):
            live.post(body)
    end(live, run.sources, tier, counts)


def page_of(live: Any, kit: Any, run_id: str) -> Json:
    """Once the last window is on it, and the verdicts that follow from it."""

    def is_whole() -> Json | None:
        page: Json = live.get(f"/v1/run?run={run_id}").json()
        is_named = any(v["state"] == "confirmed" for v in page.get("verdicts", ()))
        is_over = is_named and page["run"]["finished_at_s"] is not None
        table = live.report()["runs"].get(run_id, {}).get("windows")
        return page if is_over and table and table[-1]["last_step"] == N_STEPS - 1 else None

    found: Json = kit.eventually(is_whole)
    return found


def compared(page: Json) -> Json:
    """What may not depend on a tier."""
    return {
        "answer": {k: v for k, v in page["answer"].items() if k != "commands"},
        "verdicts": [{k: v for k, v in each.items() if k != "run_id"} for each in page["verdicts"]],
        "sections": page["sections"],
        "heat": page["heat"],
        "ledger": page.get("ledger"),
        "time_basis": page["run"]["time_basis"],
        "slowdown": page["run"]["slowdown"],
        "lost": page["run"]["gpu_seconds_lost"],
    }


@pytest.mark.parametrize("tier", ["events", "cupti", "cupti, 1 in 10"])
def test_the_page_of_a_tier_without_any_times_is_that_of_off(
    start: Callable[..., Any], kit: Any, tier: str
) -> None:
    """All sections, scores and verdicts; it says besides how many times are missing, and why."""
    live = start(scoring__window_steps=20, scoring__grace_s=60.0)
    missing = N_STEPS * len(plan(tier).sections)
    send(live, plan("off"), "off", lambda _: {})
    send(
        live, plan(tier), tier.split(",", maxsplit=1)[0],
        lambda rank: {"gpu_missing": missing, **({"gpu_late": 7} if rank == 2 else {})},
    )  # fmt: skip
    pages = [page_of(live, kit, plan(each).run_id) for each in ("off", tier)]
    off, page = (compared(each) for each in pages)
    assert page == off
    assert page["time_basis"] == "collective"
    assert [v["rank"] for v in page["verdicts"]] == [SLOW]
    assert pages[0]["run"]["gpu_times"] == {
        "tiers": {"off": N_RANKS}, "reasons": {"asked": N_RANKS - 1, "no_marks": 1},
        "missing": 0, "ranks_missing": 0, "lost": {}, "text": None,
    }  # fmt: skip
    assert pages[1]["run"]["gpu_times"] == {
        "tiers": {tier.split(",", maxsplit=1)[0]: N_RANKS},
        "reasons": {"asked": N_RANKS - 1, "no_marks": 1},
        "missing": N_RANKS * missing, "ranks_missing": N_RANKS, "lost": {"gpu_late": 7},
        "text": f"{N_RANKS * missing:,} GPU times are missing (8 of 8 ranks); not counted: "
        "7 kernels that came too late",
    }  # fmt: skip
    rank = live.get(f"/v1/rank?run={plan(tier).run_id}&rank=2").json()
    assert rank["gpu"]["missing"] == missing
    assert rank["gpu"]["lost"] == {"gpu_late": 7}
    assert len(rank["sections"]) == len(plan(tier).sections)


def test_the_page_has_gpu_scores_between_samples_and_says_how_old_they_are(
    start: Callable[..., Any], kit: Any
) -> None:
    """Kernels in one step of 50, windows of 20 steps: the last one has those of ten steps before
    its end; and the slow GPU is named by the events of all other steps."""
    live = start(scoring__window_steps=20, scoring__grace_s=60.0)
    tier = "cupti, 1 in 50"
    sampled = plan(
        tier, f"compute:1.3@rank{SLOW}:step0", gpu_missing=0.0, report_collectives=False,
        timing="asynchronous",
    )  # fmt: skip
    run, reports = generate(sampled), KernelReports()
    for rows in run.batches():
        for step in sorted(set(rows.step.tolist())):
            reports.add(rows.take(rows.step == step))
            since_ns, until_ns, kernels = reports.drain()
            for code, counts in kernels.items():
                resource = resource_of(rows.sources[code])
                body = encode_kernel_times(
                    counts, resource=resource, start_ns=since_ns, end_ns=until_ns
                )
                live.post(body, "metrics")
        for body in encode_requests(rows):
            live.post(body)
    end(live, run.sources, "cupti", lambda _: {})
    page = page_of(live, kit, sampled.run_id)
    assert page["run"]["time_basis"] == "events"
    assert page["run"]["gpu_times"]["text"] is None
    assert [(v["rank"], v["cause"], v["evidence"]) for v in page["verdicts"]] == [
        (SLOW, "slow_gpu", "events")
    ]
    rank = live.get(f"/v1/rank?run={sampled.run_id}&rank={SLOW}").json()
    assert rank["gpu_relative"] == pytest.approx(1 / 1.3, abs=0.05)
    assert rank["gpu_age_s"] == pytest.approx(9 * page["run"]["step_s"], rel=0.2)
