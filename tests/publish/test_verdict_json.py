"""Verdicts in the report: keys that scripts rely on, null for what is not known, parts of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_straggler.collector.views.report_json import RunReport, dump_report, report_json
from otel_straggler.collector.views.verdict_json import run_verdicts_part, verdict_json
from otel_straggler.model.verdict import RunVerdicts

NAN = float("nan")
PROMISED = [
    "subject_id", "scope", "rank", "node", "role", "section", "cause", "state", "evidence",
    "slowdown", "since_step", "confirmed_step", "confidence", "gpu_seconds_lost_per_hour",
    "sentence",
]  # fmt: skip
OF_THE_RUN = ["slowdown", "waste", "m_w", "m_s", "cause", "resolvable_slowdown", "coverage"]


def reported(run_verdicts: RunVerdicts) -> Any:
    """What a reader of the report gets."""
    return json.loads(dump_report(report_json({"run": RunReport(run_verdicts=run_verdicts)})))[
        "runs"
    ]["run"]


def test_a_verdict_has_the_keys_that_scripts_rely_on(by_hand: Any) -> None:
    """Nothing is renamed, and what is added comes after."""
    result = verdict_json(by_hand.verdict())
    assert list(result)[: len(PROMISED)] == PROMISED
    assert [result[key] for key in PROMISED] == [
        "gpu:GPU-5", "rank", 5, "node-1", "default", "forward", "slow_gpu", "confirmed", "events",
        1.52, 40, 55, 0.97, 8640.0, by_hand.sentence,
    ]  # fmt: skip
    assert set(result) - set(PROMISED) == {
        "group", "attempt", "at_step", "at_ns", "n_peers", "own_s", "peers_s", "pages",
        "is_localised", "began", "cause_text", "on_gpu", "detail", "since_ns",
    }  # fmt: skip


def test_what_a_verdict_does_not_know_is_null(by_hand: Any) -> None:
    """Names that do not apply, numbers that could not be measured."""
    of_the_run = by_hand.verdict(
        scope="run", rank=None, node="", role="", section="", slowdown=NAN, own_s=NAN, peers_s=NAN,
        since_step=None, gpu_seconds_lost_per_hour=float("inf"), confidence=NAN,
    )  # fmt: skip
    [result] = reported(by_hand.run_verdicts(of_the_run))["verdicts"]
    unknown = {key for key, value in result.items() if value is None}
    assert unknown == {
        "rank", "node", "role", "section", "slowdown", "own_s", "peers_s", "since_step",
        "gpu_seconds_lost_per_hour", "confidence", "detail",
    }  # fmt: skip


def test_every_change_of_state_is_listed_in_order(by_hand: Any) -> None:
    """The last of a subject counts."""
    changes = [by_hand.verdict(state) for state in ("suspect", "confirmed", "recovered")]
    result = reported(by_hand.run_verdicts(*changes))["verdicts"]
    assert [change["state"] for change in result] == ["suspect", "confirmed", "recovered"]


def test_what_a_run_loses_is_told_with_its_cause(by_hand: Any) -> None:
    """A word for scripts; people read the sentence."""
    run = reported(by_hand.run_verdicts(worlds=(by_hand.world(),)))["run"]
    assert list(run)[: len(OF_THE_RUN)] == OF_THE_RUN
    assert [run[key] for key in OF_THE_RUN] == [
        1.18, pytest.approx(0.1525, abs=1e-3), 0.03, 1.2, "stage_imbalance", 1.03, 1.0,
    ]  # fmt: skip
    assert (run["gpu_seconds_lost"], run["step_s"]) == (43_200.0, 0.4)
    assert run["heat"][-1] == [1, 3, 1.13]
    assert run["ledger"] == [
        {"section": "forward", "exposed_s": 0.2, "typical_s": 0.1, "leader_rank": 5}
    ]
    assert run["waits"][0] == {
        "rank": 5, "node": "node-1", "role": "default", "group": "", "caused_s": 60.0,
        "suffered_s": 0.0,
    }  # fmt: skip
    assert run["worlds"][""]["slowdown"] == 1.18


def test_of_several_worlds_the_one_that_loses_most_stands_for_the_run(by_hand: Any) -> None:
    """The others are under their group."""
    worlds = (
        by_hand.world(group="actor", gpu_seconds_lost=NAN, slowdown=1.5),
        by_hand.world(group="critic", gpu_seconds_lost=9.0, slowdown=1.1),
        by_hand.world(group="reward", gpu_seconds_lost=8.0, slowdown=1.2),
    )
    run = reported(by_hand.run_verdicts(worlds=worlds))["run"]
    assert (run["group"], run["slowdown"]) == ("critic", 1.1)
    assert {group: world["slowdown"] for group, world in run["worlds"].items()} == {
        "actor": 1.5, "critic": 1.1, "reward": 1.2,
    }  # fmt: skip
    assert run["worlds"]["actor"]["gpu_seconds_lost"] is None


def test_a_run_without_a_summary_has_all_keys_and_no_figures() -> None:
    """Nothing is known is not the same as nothing is lost."""
    run = reported(RunVerdicts())["run"]
    assert {key for key, value in run.items() if value not in (None, [], {}, "", 0)} == set()
    assert run["gpu_seconds_lost"] is None
    assert set(OF_THE_RUN) <= set(run)


def part(run_verdicts: RunVerdicts, group: str | None = None, rank: int | None = None) -> list[str]:
    """Subjects of a part; ranks run on node-1."""
    result = run_verdicts_part(
        run_verdicts, group=group, rank=rank, is_its_node={"node-1"}.__contains__
    )
    return [verdict.subject_id for verdict in result.changes]


def test_a_rank_is_told_what_concerns_it(by_hand: Any) -> None:
    """Itself, its node, the run; no other rank, node or role."""
    given = {"rank": None, "node": "", "role": ""}
    run_verdicts = by_hand.run_verdicts(
        by_hand.verdict(subject_id="own"),
        by_hand.verdict(subject_id="other rank", rank=6),
        by_hand.verdict(subject_id="own node", scope="host", **{**given, "node": "node-1"}),
        by_hand.verdict(subject_id="other node", scope="host", **{**given, "node": "node-2"}),
        by_hand.verdict(subject_id="role", scope="role", **{**given, "role": "default"}),
        by_hand.verdict(subject_id="run", scope="run", **given),
    )
    assert part(run_verdicts, rank=5) == ["own", "own node", "run"]
    assert len(part(run_verdicts)) == 6


def test_a_group_is_told_only_of_itself(by_hand: Any) -> None:
    """Its verdicts and its world; of a rank its own waits, and no heat."""
    run_verdicts = by_hand.run_verdicts(
        by_hand.verdict(group="actor", subject_id="a"),
        by_hand.verdict(group="critic", subject_id="c"),
        worlds=(by_hand.world(group="actor"), by_hand.world(group="critic")),
    )
    assert part(run_verdicts, group="critic") == ["c"]
    result = run_verdicts_part(run_verdicts, group="critic", rank=0, is_its_node=lambda _: False)
    [world] = result.worlds
    assert (world.group, world.heat) == ("critic", ())
    assert [waits.rank for waits in world.waits] == [0]
