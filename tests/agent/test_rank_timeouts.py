"""Timeouts of one rank: learned, and exceeded or not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from otel_straggler.detect.hangs.rank_timeouts import (
    HeartbeatTimeouts,
    Intervals,
    LearningRules,
    RankBeats,
    SectionTimeouts,
    learned_heartbeat_timeouts,
    learned_section_timeouts,
    merged,
    overdue,
)

S = 1_000_000_000
NONE = Intervals()
FIVE = LearningRules()
NO_HEARTBEATS = HeartbeatTimeouts()
NO_SECTIONS = SectionTimeouts()


def seen(*seconds: float) -> Intervals:
    counts, longest = [0] * 64, [0] * 64
    for one in seconds:
        ns = round(one * S)
        counts[ns.bit_length()] += 1
        longest[ns.bit_length()] = max(longest[ns.bit_length()], ns)
    return Intervals(counts, longest)


# --- learning -------------------------------------------------------------------------------------


def test_a_timeout_is_five_times_the_longest_interval() -> None:
    learned = learned_heartbeat_timeouts(seen(2.0), seen(0.5, 1.0, 0.7), NO_HEARTBEATS, FIVE)
    assert learned == HeartbeatTimeouts(10.0, 5.0, True)


def test_before_the_second_heartbeat_nothing_is_learned() -> None:
    assert learned_heartbeat_timeouts(NONE, NONE, NO_HEARTBEATS, FIVE) is None
    assert learned_heartbeat_timeouts(seen(1.0), NONE, NO_HEARTBEATS, FIVE) is None


def test_the_longest_interval_of_any_rank_counts() -> None:
    assert merged([seen(1.0), seen(3.0, 0.5), NONE]).timeout_s() == 15.0
    assert merged([seen(1.0), seen(3.0, 0.5)]).count == 3
    assert merged([]).timeout_s() == 0.0


def test_learned_timeouts_are_averaged_with_earlier_learned_ones_only() -> None:
    def learned(current: HeartbeatTimeouts) -> HeartbeatTimeouts | None:
        return learned_heartbeat_timeouts(seen(2.0), seen(1.0), current, FIVE)

    assert learned(HeartbeatTimeouts(20.0, 15.0, True)) == HeartbeatTimeouts(15.0, 10.0, True)
    assert learned(HeartbeatTimeouts(20.0, 15.0, False)) == HeartbeatTimeouts(10.0, 5.0, True)


def test_one_slow_checkpoint_does_not_hide_hangs_for_long() -> None:
    """NVRx would wait for 50 minutes: five times the checkpoint."""
    usual, checkpoint = [1.0] * 99, 600.0
    assert seen(*usual, checkpoint).timeout_s() == pytest.approx(720.0)
    assert seen(*[1.0] * 10, checkpoint).timeout_s() == pytest.approx(3_000.0), "too few to know"
    assert seen(*[1.0] * 100).timeout_s() == 5.0


def test_a_learned_timeout_is_at_least_the_minimum() -> None:
    rules = LearningRules(5.0, min_s=30.0)
    learned = learned_heartbeat_timeouts(seen(0.1), seen(10.0), NO_HEARTBEATS, rules)
    assert learned == HeartbeatTimeouts(30.0, 50.0, True)


OBSERVED = {"setup": seen(2.0), "step": seen(1.0), "checkpoint": NONE}
CONFIGURED = SectionTimeouts({"setup": 100.0, "step": None, "checkpoint": 60.0}, 7.0)


def test_every_selected_section_has_to_have_been_closed_once() -> None:
    assert learned_section_timeouts(OBSERVED, seen(1.0), CONFIGURED, FIVE) is None
    some = learned_section_timeouts(OBSERVED, seen(1.0), CONFIGURED, FIVE, ["setup", "step"])
    assert some is not None
    assert some.section == {"setup": 10.0, "step": 5.0, "checkpoint": 60.0}
    assert some.calculated_sections == {"setup", "step"}
    assert not some.were_calculated


def test_the_time_outside_of_sections_is_learned_only_if_wanted() -> None:
    its = learned_section_timeouts(
        OBSERVED, NONE, CONFIGURED, FIVE, ["step"], with_out_of_section=False
    )
    assert its is not None
    assert (its.out_of_section, its.is_out_of_section_calculated) == (7.0, False)
    assert learned_section_timeouts(OBSERVED, NONE, CONFIGURED, FIVE, ["step"]) is None
    its = learned_section_timeouts(OBSERVED, seen(0.5), CONFIGURED, FIVE, ["step"])
    assert its is not None
    assert (its.out_of_section, its.is_out_of_section_calculated) == (2.5, True)


def test_learned_sections_are_averaged_each_for_itself() -> None:
    current = SectionTimeouts({"setup": 20.0, "step": 9.0}, 4.5, {"setup"}, True)
    observed = {"setup": seen(2.0), "step": seen(1.0)}
    its = learned_section_timeouts(observed, seen(0.5), current, FIVE)
    assert its is not None
    assert its.section == {"setup": 15.0, "step": 5.0}
    assert its.out_of_section == 3.5
    assert its.were_calculated
    assert its.are_valid


# --- watching -------------------------------------------------------------------------------------


def beats(**fields: object) -> RankBeats:
    return RankBeats(**{"started_s": 100.0, "outside_since_s": 100.0, **fields})  # type: ignore[arg-type]


def exceeded(
    state: RankBeats,
    now_s: float,
    heartbeat: HeartbeatTimeouts = NO_HEARTBEATS,
    section: SectionTimeouts = NO_SECTIONS,
) -> list[tuple[str, str]]:
    return [(one.kind, one.section) for one in overdue(state, heartbeat, section, now_s)]


BOTH = HeartbeatTimeouts(60.0, 10.0)


def test_until_the_first_heartbeat_the_initial_timeout_holds() -> None:
    assert exceeded(beats(), 160.0, BOTH) == []
    assert exceeded(beats(), 160.1, BOTH) == [("initial_heartbeat", "")]
    begun = beats(heartbeats=1, last_heartbeat_s=150.0)
    assert exceeded(begun, 160.0, BOTH) == []
    assert exceeded(begun, 160.1, BOTH) == [("heartbeat", "")]


def test_without_timeouts_nothing_is_overdue() -> None:
    assert exceeded(beats(open_s={"step": 100.0}), 1e9) == []


def test_a_rank_that_works_with_sections_is_not_expected_to_send_heartbeats() -> None:
    assert exceeded(beats(has_sections=True), 1e6, BOTH) == []
    both = beats(has_sections=True, last_heartbeat_s=100.0)
    assert exceeded(both, 200.0, BOTH) == [("heartbeat", "")]


def test_an_outer_section_counts_while_an_inner_one_has_time_left() -> None:
    """In NVRx the last section of the list decides for all."""
    timeouts = SectionTimeouts({"outer": 2.0, "inner": 1_000.0})
    nested = beats(open_s={"outer": 100.0, "inner": 101.0})
    assert exceeded(nested, 102.0, section=timeouts) == []
    assert exceeded(nested, 102.1, section=timeouts) == [("section", "outer")]
    other_order = beats(open_s={"inner": 101.0, "outer": 100.0})
    assert exceeded(other_order, 102.1, section=timeouts) == [("section", "outer")]


def test_the_timeout_that_is_exceeded_most_comes_first() -> None:
    timeouts = SectionTimeouts({"a": 1.0, "b": 2.0})
    state = beats(open_s={"a": 109.0, "b": 100.0}, last_heartbeat_s=100.0)
    its = overdue(state, HeartbeatTimeouts(None, 5.0), timeouts, 112.0)
    assert [str(one) for one in its] == [
        "section 'b' open for 12.0 s (timeout 2.0 s)",
        "no heartbeat for 12.0 s (timeout 5.0 s)",
        "section 'a' open for 3.0 s (timeout 1.0 s)",
    ]


def test_time_outside_counts_while_no_section_is_open_also_before_the_first() -> None:
    timeouts = SectionTimeouts({"step": 50.0}, 3.0)
    assert exceeded(beats(outside_since_s=100.0), 103.1, section=timeouts) == [
        ("out_of_section", "")
    ]
    within = beats(open_s={"step": 100.0}, outside_since_s=50.0)
    assert exceeded(within, 110.0, section=timeouts) == []


def warming(step: int, sections: Sequence[str], **fields: object) -> RankBeats:
    opened = dict.fromkeys(sections, 100.0)
    return beats(step=step, first_step=10, warmup_steps=5, open_s=opened, **fields)


def test_in_the_first_steps_a_step_may_take_as_long_as_the_warmup_timeout() -> None:
    timeouts = SectionTimeouts({"step": 2.0, "warmup": 60.0})
    assert exceeded(warming(14, ["step"]), 110.0, section=timeouts) == []
    assert exceeded(warming(14, ["step"]), 161.0, section=timeouts) == [("section", "step")]
    assert exceeded(warming(15, ["step"]), 110.0, section=timeouts) == [("section", "step")]


def test_without_a_warmup_timeout_the_time_before_the_first_step_does_not_count() -> None:
    timeouts = SectionTimeouts({"step": 2.0}, 3.0)
    assert exceeded(warming(10, []), 200.0, section=timeouts) == []
    assert exceeded(warming(10, [], has_stepped=True), 200.0, section=timeouts)
    assert exceeded(beats(), 200.0, section=timeouts), "a rank that does not count its steps"
    no_step = SectionTimeouts({"load": 2.0}, 3.0)
    assert exceeded(warming(10, []), 200.0, section=no_step), "there is no step to wait for"
