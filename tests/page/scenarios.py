"""The runs that the page is looked at with: well, slow, hung, out of balance, ended, huge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .run_views import NOW_S, SECTIONS, World, alert, verdict

Json = dict[str, Any]
HOSTILE = "<img src=x onerror=alert(1)>"
"""A name that would run if it were taken for HTML."""
RIGHT_TO_LEFT = "\u202e\u05e2\u05d1\u05e8\u05d9\u05ea"
LONG = "a-very-long-name-" * 12


def healthy() -> World:
    return World()


def straggler() -> World:
    reported = verdict(21)
    return World(
        slow={(21, "forward"): 1.5, (21, "backward"): 1.12},
        run={
            "step_s": 0.458,
            "slowest_step_s": 0.463,
            "slowdown": 1.17,
            "waste": 0.145,
            "m_w": 0.98,
            "m_s": 0.02,
            "cause": "slow_gpu",
            "gpu_seconds_lost_per_hour": 33_400.0,
            "gpu_seconds_lost": 8_940.0,
            "time_basis": "events",
        },
        answer=_answer_of(
            reported,
            headline="Rank 21 on node-2 is slow in forward",
            advice=[
                "compare its clocks, temperature and XID errors with a peer's",
                "cordon the node if they differ",
            ],
            commands=[
                "otel-straggler verdict explain 21 --run llama-7b-0412",
                'otel-straggler verdict mute 21 --run llama-7b-0412 --for 8h --reason "known"',
            ],
        ),
        pattern=("hot_cell", "One worker is hot: its GPU, its host or its data."),
        verdicts=[
            reported,
            verdict(
                40,
                subject_id="rank/node-5/40",
                node="node-5",
                section="data",
                cause="slow_host",
                state="suspect",
                slowdown=1.08,
                confidence=0.61,
                gpu_seconds_lost_per_hour=210.0,
                pages=False,
                since_step=18_140,
                sentence="rank 40 on node-5 takes 1.08x as long as its 15 peers in data since step"
                " 18140: slow host or data loading.",
            ),
            verdict(
                3,
                subject_id="rank/node-0/3",
                node="node-0",
                state="recovered",
                stands=False,
                pages=False,
                slowdown=1.0,
                sentence="rank 3 on node-0 is as fast as before again.",
            ),
        ],
        alerts=[
            alert(
                "StragglerRankStraggling",
                "rank 21 on node-2 takes 1.50x as long as its peers in forward: slow GPU",
                rank="21",
                node="node-2",
                domain="hardware",
            ),
            alert("StragglerRunSlow", "the run takes 1.17x as long as it could", "warning"),
        ],
        decisions=[
            {
                "action": "mute",
                "subject_id": "rank/node-0/3",
                "reason": "its disk is being replaced",
                "by": "mira",
                "at_ns": round((NOW_S - 5200) * 1e9),
                "until_ns": round((NOW_S + 9200) * 1e9),
                "cause": "slow_host",
                "is_in_force": True,
            }
        ],
        maintenance=[
            {"node": "node-7", "reason": "new firmware", "by": "olu", "until_s": NOW_S + 5400}
        ],
    )


def hang() -> World:
    states = dict.fromkeys(range(64), "stuck") | {11: "lost"}
    printed = "Rank 11: no sign of life; 63 ranks wait."
    return World(
        state=states,
        is_silent=True,
        run={"state": "partly_lost", "ranks_reporting": 63, "received_at_s": NOW_S - 0.7},
        answer={
            "tone": "bad",
            "headline": "Rank 11 is lost, and 63 ranks wait for it",
            "sentence": printed,
            "kind": "hang",
            "scope": "rank",
            "rank": 11,
            "cause": "lost",
            "node": "node-1",
            "section": "gradient_sync",
            "since_s": NOW_S - 212,
            "since_step": 18_240,
            "cost": {"gpu_seconds_lost_per_hour": 230_400.0, "gpu_seconds_lost": 13_600.0},
            "advice": ["look at node-1: is the process there, does the host answer?"],
            "commands": ["otel-straggler hang --run llama-7b-0412"],
        },
        pattern=("silent", "A worker gives no sign of life; the others wait for it."),
        hangs=[
            {
                "group": "",
                "state": "partly_lost",
                "since_s": NOW_S - 212,
                "acknowledged": False,
                "ranks": {"stuck": 63, "lost": 1},
                "why": "lost",
                "culprits": [11],
                "victims": 63,
                "sentence": printed,
            }
        ],
        alerts=[alert("StragglerRankLost", printed, rank="11", node="node-1")],
    )


def imbalance() -> World:
    last_stage = {(rank, name): 1.31 for rank in range(48, 64) for name in ("forward", "backward")}
    return World(
        slow=last_stage,
        run={"slowdown": 1.22, "waste": 0.18, "m_s": 0.94, "cause": "stage_imbalance"},
        answer={
            "tone": "watch",
            "headline": "Stage 3 has more work than the others",
            "sentence": "the run takes 1.22x as long as it would if all did the same work: pipeline"
            " stages of unequal work. The job loses 11 h of GPU time per hour.",
            "kind": "imbalance",
            "scope": "run",
            "cause": "stage_imbalance",
            "cause_text": "stage imbalance",
            "since_step": 0,
            "since_s": NOW_S - 8040,
            "evidence": "host",
            "confidence": 0.99,
            "is_localised": True,
            "advice": ["move layers between the stages; no machine is at fault"],
        },
        pattern=("hot_row", "The last stage is hot: it has more work than the others."),
        verdicts=[
            verdict(
                None,
                subject_id="run/",
                scope="run",
                node=None,
                role=None,
                section=None,
                cause="stage_imbalance",
                pages=False,
                sentence="the run takes 1.22x as long as it would if all did the same work:"
                " pipeline stages of unequal work.",
            )
        ],
    )


def ended() -> World:
    world = straggler()
    world.run |= {
        "state": "finished",
        "outcome": "ok",
        "finished_at_s": NOW_S - 900,
        "received_at_s": NOW_S - 900,
    }
    world.state = dict.fromkeys(range(64), "finished")
    world.answer = {
        "tone": "ended",
        "kind": "ended",
        "headline": "The run has ended well; it lost 2.5 GPU-hours",
        "sentence": "It took 1.17x as long as it could: rank 21 on node-2 was slow in forward.",
    }
    world.alerts = []
    return world


def history() -> World:
    world = ended()
    world.run |= {"is_live": False}
    return world


def waiting() -> World:
    unknown = dict.fromkeys(
        ("step_s", "slowest_step_s", "slowdown", "waste", "resolvable_slowdown", "time_basis")
    )
    return World(
        ranks=8,
        stages=1,
        sections=(),
        run={**unknown, "step": 3, "gpu_seconds_lost": None, "gpu_seconds_lost_per_hour": None},
        answer={
            "tone": "unknown",
            "kind": "waiting",
            "headline": "8 ranks have reported; the first window is not complete",
            "sentence": "Scores come after the first 20 steps.",
            "cost": None,
        },
        pattern=("unknown", "Nothing is known of the layout yet."),
    )


def huge() -> World:
    slow = {(4321, "forward"): 1.6, (77, "backward"): 1.2}
    states = {9000: "lost", 123: "late", 9999: "stuck"}
    world = straggler()
    return World(
        ranks=10_000,
        stages=8,
        slow=slow,
        state=states,
        run={**world.run, "ranks_reporting": 9_999, "coverage": 0.9999},
        answer={
            **world.answer,
            "headline": "Rank 4321 on node-540 is slow in forward",
            "rank": 4321,
        },
        pattern=world.pattern,
        verdicts=[verdict(n, subject_id=f"rank/{n}", state="suspect") for n in range(200)],
        alerts=world.alerts,
    )


def hostile() -> World:
    reported = verdict(
        3,
        node=HOSTILE,
        section=HOSTILE,
        cause="<b>new</b>",
        sentence=f"rank 3 on {HOSTILE} takes 2x as long in {RIGHT_TO_LEFT} {LONG}",
    )
    names = (HOSTILE, RIGHT_TO_LEFT, LONG)
    sections = tuple(
        (names[n] if n < len(names) else name, kind, s)
        for n, (name, kind, s) in enumerate(SECTIONS)
    )
    return World(
        run_id=f"{HOSTILE}&group=#x",
        job=HOSTILE,
        slow={(3, HOSTILE): 2.0},
        sections=sections,
        node=lambda rank: (HOSTILE, RIGHT_TO_LEFT, LONG)[rank % 3],
        run={"groups": ["", HOSTILE, LONG], "state": HOSTILE, "time_basis": HOSTILE},
        answer=_answer_of(
            reported,
            headline=f"Rank 3 on {HOSTILE} is slow in {RIGHT_TO_LEFT}",
            advice=[HOSTILE, LONG],
            commands=[f"otel-straggler verdict explain 3 --run '{HOSTILE}'", LONG],
        ),
        verdicts=[reported],
        pattern=("hot_cell", f"In {RIGHT_TO_LEFT}: {HOSTILE}"),
        alerts=[
            {
                **alert(HOSTILE, HOSTILE, **{HOSTILE: LONG, "rank": HOSTILE}),
                "annotations": {"summary": HOSTILE, "runbook_url": "javascript:alert(1)"},
            }
        ],
        hangs=[
            {
                "group": HOSTILE,
                "state": "stuck",
                "since_s": NOW_S,
                "acknowledged": True,
                "ranks": {},
                "why": None,
                "culprits": [],
                "victims": 0,
                "sentence": HOSTILE,
            }
        ],
        decisions=[
            {
                "action": HOSTILE,
                "subject_id": LONG,
                "reason": HOSTILE,
                "by": RIGHT_TO_LEFT,
                "at_ns": round(NOW_S * 1e9),
                "until_ns": None,
                "cause": "unknown",
                "is_in_force": True,
            }
        ],
        maintenance=[{"node": HOSTILE, "reason": LONG, "by": HOSTILE, "until_s": NOW_S + 60}],
    )


SCENARIOS: dict[str, Callable[[], World]] = {
    each.__name__: each
    for each in (
        healthy,
        straggler,
        hang,
        imbalance,
        ended,
        history,
        waiting,
        huge,
        hostile,
    )
}


def _answer_of(reported: Json, **more: Any) -> Json:
    """The answer that stands on a verdict."""
    kept = ("scope", "rank", "node", "section", "since_step", "since_s", "cause", "evidence")
    kept += ("confidence", "is_localised", "sentence")
    return {
        **{key: reported[key] for key in kept},
        "tone": "bad",
        "kind": "straggler",
        "cause_text": "slow GPU" if reported["cause"] == "slow_gpu" else reported["cause"],
        "cost": {
            "gpu_seconds_lost_per_hour": reported["gpu_seconds_lost_per_hour"],
            "gpu_seconds_lost": 8_940.0,
        },
        "peers": {
            "own_s": reported["own_s"],
            "peers_s": reported["peers_s"],
            "n_peers": 15,
            "slowdown": 1.5,
        },
        **more,
    }
