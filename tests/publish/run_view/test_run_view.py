"""The picture as a whole: all ranks, all sections, in few digits, at any size."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from otel_straggler.cli.report_lines import report_lines
from otel_straggler.collector.views.heat import ALIKE_AT_WORK, CANNOT_REPORT, NOBODY_NOW
from otel_straggler.collector.views.page_json import ResponseMeta, page_json, runs_json
from otel_straggler.collector.views.run_json import one_of, run_entry
from otel_straggler.collector.views.timeline import column_of
from otel_straggler.collector.views.verdict_json import MAX_VERDICTS
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.alert import Maintenance
from otel_straggler.model.verdict import Decision, RunVerdicts

from . import made

MAKER = ResponseMeta(collector="host:1", version="1.2", started_at_s=5.0)


def run_view(seen: WorldView) -> dict[str, Any]:
    """As a page reads it."""
    result: dict[str, Any] = json.loads(json.dumps(page_json(seen, MAKER), allow_nan=False))
    return result


def test_it_has_every_part_whatever_is_known() -> None:
    """A page asks for no part in vain."""
    full = run_view(made.seen(made.verdict()))
    bare = run_view(WorldView(run_id="r", now_s=1.0))
    gone = run_view(replace(made.seen(), table=None, hang=None, heartbeats=None))
    assert full.keys() == bare.keys() == gone.keys()
    for part in ("run", "answer", "ranks", "heat", "slowdowns", "timeline"):
        assert full[part].keys() == bare[part].keys(), part
    assert bare["run"]["state"] == "unknown"
    assert bare["ranks"]["rank"] == []


def test_the_head_says_who_speaks_and_when() -> None:
    result = page_json(
        made.seen(),
        MAKER,
        snapshot="s",
        next_look_s=2.0,
        timeline=[column_of(made.table_of(), seq, 0) for seq in (3, 4, 5)],
        now_s=made.NOW_S + 5,
    )
    assert (result["schema_version"], result["collector"], result["version"]) == (
        1,
        "host:1",
        "1.2",
    )
    assert (result["snapshot"], result["next_look_s"]) == ("s", 2.0)
    assert result["now_s"] == made.NOW_S + 5
    assert result["timeline"] == {"first": 3, "last": 5, "n_columns": 3}


def test_figures_of_the_run() -> None:
    result = run_view(made.seen(world=made.summary(slowdown=1.25, waste=0.2, m_w=0.9)))["run"]
    assert (result["slowdown"], result["waste"], result["m_w"]) == (1.25, 0.2, 0.9)
    assert result["gpu_seconds_lost_per_hour"] == 0.2 * 8 * 3600
    assert (result["step"], result["step_s"]) == (61, 0.2)
    # Own work: without the waiting, and without what lies within forward.
    assert result["slowest_step_s"] == 0.12
    assert (result["world_size"], result["ranks_reporting"], result["coverage"]) == (8, 8, 1.0)
    assert (result["time_basis"], result["state"]) == ("host", "training")


def test_the_matrix_shows_what_a_rank_was_called_slow_for() -> None:
    """Layer 2 balances compute: who loads data slowly does not stand out in that."""
    alike = tuple((0, data, 1.0) for data in range(8))
    world = made.summary(heat=alike)
    loads = made.verdict(section="data_loading", cause="slow_host")
    table = made.table_of(8)
    table.own_s[5, 0] *= 1.1  # a sixtieth of all own work
    heat = run_view(made.seen(loads, world=world, table=table))["heat"]
    assert (heat["pattern"], heat["section"]) == ("hot_cell", "data_loading")
    assert heat["pattern_text"].startswith("In data_loading: One worker is hot")
    table.own_s[5, 0] *= 10
    heat = run_view(made.seen(loads, world=world, table=replace(table)))["heat"]
    assert (heat["pattern"], heat["section"]) == ("hot_cell", "data_loading")
    heat = run_view(made.seen(world=world, table=table))["heat"]  # nobody is called slow
    assert (heat["pattern"], heat["section"]) == ("even", None)


def test_many_ranks_that_are_called_slow_are_no_heat_that_moves() -> None:
    """Three of eight, always the same: nothing differs from step to step."""
    table = made.table_of(8, slow={1: 1.4, 2: 1.4, 5: 1.4})
    world = made.summary(slowdown=1.2, waste=0.17)
    called = [made.verdict(rank=rank, subject_id=f"rank/n/{rank}") for rank in (1, 2, 5)]
    heat = run_view(made.seen(*called, table=table, world=world))["heat"]
    assert heat["pattern"] == "hot_cell"
    assert heat["pattern_text"].startswith("In forward: 3 workers are hot")
    heat = run_view(made.seen(table=table, world=world))["heat"]  # nobody is called slow
    assert heat["pattern"] == "spread"


def test_lost_time_is_of_gpus_where_a_rank_told_of_one() -> None:
    """By its name, its model, what times it, or what layer 2 knows."""
    on_gpu = made.seen(table=made.table_of(8, slow={2: 1.4}))
    on_cpu = made.without_gpus(on_gpu)
    texts = {True: "One worker is hot: its GPU, its host or its data.",
             False: "One worker is hot: its host or its data."}  # fmt: skip
    for seen, reported in ((on_gpu, True), (on_cpu, False)):
        result = run_view(seen)
        assert (result["run"]["on_gpu"], result["heat"]["pattern_text"]) == (
            reported,
            texts[reported],
        )
    heartbeats = on_cpu.heartbeats
    assert heartbeats is not None
    for changes in ({"gpu_tier": ["off"] * 7 + ["events"]}, {"models": ["H200"] + [""] * 7}):
        assert run_view(replace(on_cpu, heartbeats=replace(heartbeats, **changes)))["run"]["on_gpu"]
    run_verdicts = made.seen(world=made.summary(on_gpu=True))
    assert run_view(made.without_gpus(run_verdicts))["run"]["on_gpu"]


def test_a_run_measured_without_waiting_in_collectives_says_so() -> None:
    """Whatever times its GPUs: those times may be missing, or be those of a few steps."""
    view = made.seen(world=made.summary(basis="collective"))
    assert view.heartbeats is not None
    for tier, basis in (("off", "collective"), ("cupti", "collective"), ("cupti", "events")):
        timed = replace(
            made.seen(world=made.summary(basis=basis)),
            heartbeats=replace(view.heartbeats, gpu_tier=[tier] * 8),
        )
        assert run_view(timed)["run"]["time_basis"] == basis
    begun = replace(made.seen(), heartbeats=replace(view.heartbeats, gpu_tier=["cupti"] * 8))
    begun = replace(begun, run_verdicts=RunVerdicts())
    assert run_view(begun)["run"]["time_basis"] == "cupti"  # until there are verdicts
    assert run_view(replace(view, heartbeats=None))["run"]["time_basis"] == "collective"
    assert run_view(replace(made.seen(), heartbeats=None))["run"]["time_basis"] == "host"


def test_an_even_matrix_beside_a_verdict_is_no_all_clear() -> None:
    """Times of launches, and times that hold the waiting, are alike whoever is slow."""
    cannot = made.verdict(is_localised=False, state="suspect", pages=False)
    heat = run_view(made.seen(cannot))["heat"]
    assert (heat["pattern"], heat["pattern_text"]) == ("unknown", CANNOT_REPORT)
    whole = replace(cannot, scope="run", rank=None, node="", section="", cause="unknown")
    assert run_view(made.seen(whole))["heat"]["pattern_text"] == CANNOT_REPORT
    over = run_view(made.seen(whole, hang=made.result_of(8, "finished")))["answer"]["headline"]
    could_not = "the run was slower than before; which rank was slow is unknown"
    assert over == f"The run has finished; {could_not}"
    inside = made.seen(world=made.summary(waits_inside="step"))
    assert run_view(inside)["heat"]["pattern_text"] == CANNOT_REPORT
    unseen = made.seen(world=made.summary(waits_unseen=True))
    assert run_view(unseen)["heat"]["pattern_text"] == CANNOT_REPORT
    late = made.verdict(cause="late_arrival", section="")
    assert run_view(made.seen(late))["heat"]["pattern_text"] == ALIKE_AT_WORK
    before = made.verdict()
    assert run_view(made.seen(before))["heat"]["pattern_text"] == NOBODY_NOW
    assert run_view(made.seen())["heat"]["pattern_text"] == "All workers are alike."


def test_cells_without_a_layout_are_ranks_by_their_numbers() -> None:
    """Layer 2 numbers those that it has times of: rank 19 is its fourth, and 18 sends nothing."""
    table = made.table_of(8, with_layout=False, slow={4: 1.5})
    table = replace(table, ranks=np.array([16, 17, 19, 20, 21, 22, 23, 24]))
    heartbeats = made.heartbeats_of(made.table_of(9, with_layout=False), ranks=np.arange(16, 25))
    world = made.summary(heat=tuple((0, at, 1.4 if at == 4 else 1.0) for at in range(8)))
    result = run_view(made.seen(table=table, heartbeats=heartbeats, hang=None, world=world))
    heat = result["heat"]
    assert (heat["by_rank"], heat["data_ranks"]) == (True, list(range(16, 25)))
    assert {data: slow for _, data, slow in heat["cells"] if slow != 1.0} == {18: None, 21: 1.4}
    assert (heat["pattern"], heat["data_of_rank"]) == ("hot_cell", None)


def test_ranks_that_share_a_worker_know_their_cell_where_nobody_told_the_data_dimension() -> None:
    table = made.table_of(8)
    tensor = [(("pipeline", r // 4), ("tensor", r % 2)) for r in range(8)]
    table = replace(table, parallels=tensor)
    heat = run_view(made.seen(table=table))["heat"]
    assert (heat["by_rank"], heat["stages"], heat["data_ranks"]) == (False, [0, 1], [0, 1])
    assert heat["data_of_rank"] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_what_is_known_of_the_attempt_before_is_told_as_of_before() -> None:
    """The world may be another, and nothing of the new attempt was looked at."""
    again = made.seen(
        made.verdict(state="suspect"),
        attempt=1,
        table=None,
        world_size=4,
        heartbeats=made.heartbeats_of(made.table_of(4)),
        hang=made.result_of(4),
        world=made.summary(slowdown=1.4, waste=0.28, heat=((0, 0, 1.4),)),
    )
    result = run_view(again)
    assert result["answer"]["kind"] == "waiting"
    was = "Before the restart, rank 5 on node-0 may have been slow in forward."
    assert result["answer"]["sentence"].endswith(was)
    assert " took 1.30x as long" in result["verdicts"][0]["sentence"]
    assert (result["heat"]["pattern"], result["run"]["slowdown"]) == ("unknown", None)
    assert result["run"]["gpu_seconds_lost"] == 3.0


def test_one_rank_and_ranks_that_are_all_silent_have_words_of_their_own() -> None:
    alone = run_view(made.seen(table=made.table_of(1)))["heat"]
    assert alone["pattern_text"] == "One rank: there is no peer to compare it with."
    lost = made.result_of(8, "lost", "lost", list(range(8)))
    assert run_view(made.seen(hang=lost))["heat"]["pattern_text"] == (
        "All workers are silent or stuck."
    )
    stuck = run_view(made.seen(hang=made.result_of(1, "stuck", "joined_but_stuck")))["answer"]
    assert stuck["headline"] == "The run makes no progress"
    assert stuck["sentence"].startswith("Rank 0 makes no progress. No progress for")
    assert stuck["cause_text"] == "its only rank makes no progress"


def test_verdicts_of_a_run_that_has_ended_are_told_in_the_past() -> None:
    """In the list as well as in the answer; and what is lost per hour is lost no more."""
    reported = run_view(made.seen(made.verdict(), hang=made.result_of(8, "finished")))
    sentence = reported["verdicts"][0]["sentence"]
    assert sentence == (
        "rank 5 on node-0 took 1.30x as long as its 7 peers in forward since step 40: slow GPU. "
        "The job lost 1.1 h of GPU time per hour."
    )
    assert reported["run"]["gpu_seconds_lost_per_hour"] is None
    assert reported["run"]["gpu_seconds_lost"] == 3.0


def test_slowdowns_are_of_own_work_against_the_median() -> None:
    """Waiting is no work, and what lies within a section is not counted twice."""
    result = run_view(made.seen(table=made.table_of(8, slow={5: 1.5})))
    assert [s["name"] for s in result["sections"]] == [s.name for s in made.SECTIONS]
    assert result["slowdowns"]["overall"] == [1.0] * 5 + [1.5] + [1.0] * 2
    by_name = dict(
        zip((s["name"] for s in result["sections"]), result["slowdowns"]["by_section"], strict=True)
    )
    assert by_name["forward"][5] == 1.5
    assert by_name["gradient_sync"] == [1.0] * 8


def test_ranks_of_all_parts_are_shown_together() -> None:
    """One that was only heard of, one that was only scored, one that is expected and mute."""
    table = made.table_of(4)
    heartbeats = made.heartbeats_of(made.table_of(3), step=np.array([7, -1, 9]))
    result = made.result_of(6)
    ranks = run_view(made.seen(table=table, heartbeats=heartbeats, hang=result, world_size=6))[
        "ranks"
    ]
    assert ranks["rank"] == [0, 1, 2, 3, 4, 5]
    states = [ranks["states"][code] for code in ranks["state"]]
    assert states == ["ok", "ok", "ok", "missing", "missing", "missing"]
    assert ranks["step"] == [7, None, 9, None, None, None]
    assert ranks["heartbeat_age_s"] == [1.2, 1.2, 1.2, None, None, None]
    assert [ranks["nodes"][code] for code in ranks["node"]][:4] == ["node-0"] * 4
    assert ranks["open_section"] == [0, 0, 0, None, None, None]
    assert ranks["open_sections"] == ["forward"]
    assert ranks["pp"] == [0, 0, 0, 0, None, None]
    assert ranks["tp"] is None


def test_ranks_that_send_no_heartbeats_have_no_state() -> None:
    result = run_view(made.seen(hang=None))["ranks"]
    assert {result["states"][code] for code in result["state"]} == {"unknown"}


def test_what_people_said_stands_there() -> None:
    reported = made.verdict(pages=False)
    decision = Decision(
        action="mute",
        run_id="run",
        subject_id=reported.subject_id,
        reason="known",
        at_ns=5,
        until_ns=9,
    )
    run_verdicts = made.run_verdicts(
        reported, decisions=(decision,), silenced=frozenset({reported.subject_id})
    )
    nodes = [Maintenance(node="node-0", reason="fan", by="", at_ns=1, until_ns=2_000_000_000)]
    result = run_view(made.seen(run_verdicts=run_verdicts, maintenance=nodes))
    assert result["verdicts"][0]["silenced"]
    assert result["decisions"][0]["reason"] == "known"
    assert result["maintenance"] == [
        {"node": "node-0", "reason": "fan", "by": None, "until_s": 2.0}
    ]


def test_only_verdicts_of_its_own_group_are_shown() -> None:
    other = made.verdict(group="critic", subject_id="critic:rank/1", rank=1)
    result = run_view(made.seen(made.verdict(), other))
    assert [each["subject_id"] for each in result["verdicts"]] == ["rank/node-0/5"]


def test_verdicts_that_stand_go_first_and_the_rest_is_counted() -> None:
    many = [
        made.verdict(
            subject_id=f"rank/{rank}",
            rank=rank,
            state="recovered" if rank % 2 else "confirmed",
            gpu_seconds_lost_per_hour=float(rank),
        )
        for rank in range(MAX_VERDICTS + 50)
    ]
    result = run_view(made.seen(*many))
    stands = [each["stands"] for each in result["verdicts"]]
    assert len(stands) == MAX_VERDICTS
    assert result["verdicts_left_out"] == 50
    assert stands == sorted(stands, reverse=True)
    assert result["verdicts"][0]["rank"] == MAX_VERDICTS + 48


def test_since_when_is_the_onset_and_not_when_it_was_noticed() -> None:
    """Of an onset that nobody knows nothing is said."""
    verdict = made.verdict(since_ns=3 * 10**9, at_ns=9 * 10**9)
    result = run_view(made.seen(verdict))
    assert result["verdicts"][0]["since_s"] == result["answer"]["since_s"] == 3.0
    unknown = run_view(made.seen(made.verdict(since_step=None, since_ns=0)))
    assert unknown["verdicts"][0]["since_s"] is unknown["answer"]["since_s"] is None


def test_a_matrix_in_which_nothing_stands_out_says_nothing_of_work_that_moves() -> None:
    """Workers of 1.01 to 1.03 show nothing, whatever the run loses."""
    flat = tuple((0, data, 1.01 + 0.0025 * data) for data in range(8))
    world = made.summary(slowdown=1.2, waste=0.17, heat=flat)
    assert run_view(made.seen(world=world))["heat"]["pattern_text"] == ""
    moving = made.verdict(scope="run", rank=None, node="", cause="uneven_work", pages=False)
    assert run_view(made.seen(moving, world=world))["heat"]["pattern_text"] == ""
    named = run_view(made.seen(made.verdict(), world=world, table=made.table_of(8, slow={5: 1.3})))
    assert named["heat"]["pattern_text"].startswith("In forward: One worker is hot")


def test_ten_thousand_ranks_are_drawn_in_two_megabytes() -> None:
    """The largest part is a number for each rank and section."""
    sections = made.SECTIONS
    table = made.table_of(10_000, 4, {17: 1.3}, sections=sections)
    noise = np.random.default_rng(0).normal(1.0, 0.01, table.own_s.shape)
    seen = made.seen(table=replace(table, own_s=table.own_s * noise))
    text = json.dumps(page_json(seen, MAKER), allow_nan=False, separators=(",", ":"))
    assert len(text) < 2_000_000
    assert len(json.loads(text)["slowdowns"]["overall"]) == 10_000


def test_runs_that_need_somebody_go_first() -> None:
    """Bad, to be watched, unknown, good, ended; within these what was heard of last."""
    worlds = {
        "good": made.seen(),
        "older": made.seen(received_at_s=made.NOW_S - 50),
        "bad": made.seen(made.verdict()),
        "watch": made.seen(made.verdict(state="suspect", pages=False)),
        "new": made.seen(run_verdicts=RunVerdicts()),
        "over": made.seen(hang=made.result_of(8, "finished"), finished_at_s=made.NOW_S),
    }
    entries = [run_entry([replace(seen, run_id=name)]) for name, seen in worlds.items()]
    result = runs_json(entries, MAKER, made.NOW_S)["runs"]
    assert [run["run_id"] for run in result] == ["bad", "watch", "new", "good", "older", "over"]
    assert result[0]["headline"] == "Rank 5 on node-0 is slow in forward"
    assert result[-1]["finished_at_s"] == made.NOW_S


def test_a_run_of_several_worlds_is_as_well_as_its_worst() -> None:
    """And the world that lost most is shown first, a hung one before it."""
    calm = replace(made.seen(), group="actor")
    slow = replace(
        made.seen(),
        group="critic",
        run_verdicts=made.run_verdicts(
            made.verdict(group="critic"), world=made.summary(group="critic", gpu_seconds_lost=99.0)
        ),
    )
    entry = run_entry([calm, slow])
    assert (entry["tone"], entry["world_size"]) == ("bad", 16)
    assert one_of([calm, slow], None) is slow
    hung = replace(calm, hang=made.result_of(8, "stuck", "never_joined", [0]))
    assert one_of([hung, slow], None) is hung


def test_ranks_without_a_gpu_score_say_why_in_one_line() -> None:
    """By what each reports of its timing, else by what the scores show; on the terminal as well. A
    run that has a score of every rank, or no GPU, says nothing."""
    table = made.table_of(4)
    table.gpu_relative[:3], table.gpu_individual[:3] = (1.0, np.nan, np.nan), (1.0, 1.0, np.nan)
    tiers, reasons = ["cupti", "cupti", "cupti", "events"], ["", "", "", "insufficient_privileges"]
    heartbeats = made.heartbeats_of(table, gpu_tier=tiers, gpu_reason=reasons)
    result = run_view(made.seen(table=table, heartbeats=heartbeats))
    line = result["run"]["gpu_scores_missing"]
    first, second, third = line.split("; ")
    assert first.startswith("no relative GPU score of rank 1: it has no kernel that all ranks")
    assert second.startswith("no GPU scores of rank 2: no kernel times of this window have arrived")
    assert third.startswith("no GPU scores of rank 3: kernels are not timed, because the driver")
    assert line in [str(each) for each in report_lines(result)]
    table.gpu_relative[:] = table.gpu_individual[:] = 1.0
    assert run_view(made.seen(table=table))["run"]["gpu_scores_missing"] is None
    assert run_view(made.without_gpus(made.seen()))["run"]["gpu_scores_missing"] is None
