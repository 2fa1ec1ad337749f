"""Verdicts and summaries of runs, made by hand: what layer 2 may say, for tests that show it."""

from __future__ import annotations

from typing import Any

from otel_straggler.model.verdict import (
    RankWaits,
    RunVerdicts,
    SectionCost,
    State,
    Verdict,
    WorldSummary,
)

SENTENCE = (
    "rank 5 on node-1 takes 1.52x as long as its 7 peers in forward since step 40: slow GPU."
    " The job loses 2.4 h of GPU time per hour."
)


class ByHand:
    """What a test does not change is a rank 5 on node-1 of a run called "run"."""

    sentence = SENTENCE

    @staticmethod
    def verdict(state: State = "confirmed", **changes: Any) -> Verdict:
        """One change of state."""
        reported: dict[str, Any] = {
            "run_id": "run",
            "subject_id": "gpu:GPU-5",
            "scope": "rank",
            "rank": 5,
            "node": "node-1",
            "role": "default",
            "section": "forward",
            "cause": "slow_gpu",
            "state": state,
            "evidence": "events",
            "slowdown": 1.52,
            "since_step": 40,
            "confirmed_step": 55 if state in ("confirmed", "flapping") else None,
            "at_step": 55,
            "at_ns": 1_790_000_000_000_000_000,
            "confidence": 0.97,
            "gpu_seconds_lost_per_hour": 8640.0,
            "n_peers": 7,
            "own_s": 0.152,
            "peers_s": 0.1,
            "pages": state == "confirmed",
            "on_gpu": True,
            "sentence": SENTENCE,
        }
        return Verdict(**{**reported, **changes})

    @staticmethod
    def world(**changes: Any) -> WorldSummary:
        """Eight ranks in two stages, of which the last is the slower one."""
        reported: dict[str, Any] = {
            "run_id": "run",
            "slowdown": 1.18,
            "waste": 1 - 1 / 1.18,
            "m_w": 0.03,
            "m_s": 1.2,
            "cause": "stage_imbalance",
            "resolvable_slowdown": 1.03,
            "coverage": 1.0,
            "gpu_seconds_lost": 43_200.0,
            "on_gpu": True,
            "step_s": 0.4,
            "heat": tuple(
                (s, d, round(1.0 + s / 10 + d / 100, 2)) for s in range(2) for d in range(4)
            ),
            "ledger": (
                SectionCost(section="forward", exposed_s=0.2, typical_s=0.1, leader_rank=5),
            ),
            "waits": (ByHand.waits(5, caused_s=60.0), ByHand.waits(0, suffered_s=58.0)),
        }
        return WorldSummary(**{**reported, **changes})

    @staticmethod
    def waits(rank: int, **changes: Any) -> RankWaits:
        """Of a rank on a node of four."""
        reported: dict[str, Any] = {
            "role": "default",
            "group": "",
            "caused_s": 0.0,
            "suffered_s": 0.0,
        }
        return RankWaits(rank=rank, node=f"node-{rank // 4}", **{**reported, **changes})

    @staticmethod
    def run_verdicts(*changes: Verdict, worlds: tuple[WorldSummary, ...] = ()) -> RunVerdicts:
        """Layer 2 of a run."""
        return RunVerdicts(changes=changes, worlds=worlds)
