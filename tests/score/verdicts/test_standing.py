"""The state of one subject over time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.log import FLAP_WITHIN_NS, SubjectState

EVERY = 5
HOLD = 3


class Watched:
    """A standing that is evaluated every 5 steps, one second each."""

    def __init__(self) -> None:
        self.standing, self.steps = SubjectState(), 0

    def see(self, times: int = 1, **reported: bool) -> str:
        for _ in range(times):
            self.steps += EVERY
            printed = {"flagged": False, "sure": False, "clear": False, **reported}
            self.standing.observe(steps=self.steps, at_ns=self.steps * 10**9, **printed)
        return self.standing.state


def test_two_findings_ten_steps_apart_confirm() -> None:
    """Not two that share most of their steps."""
    watched = Watched()
    assert watched.see(flagged=True) == "suspect"
    assert watched.see(flagged=True) == "suspect"
    assert watched.see(flagged=True) == "confirmed"


def test_one_finding_between_may_be_missing_but_not_three() -> None:
    """Two of three evaluations."""
    watched = Watched()
    watched.see(flagged=True)
    watched.see(2)
    assert watched.see(flagged=True) == "confirmed"
    other = Watched()
    other.see(flagged=True)
    other.see(4)
    assert other.see(flagged=True) == "suspect"


def test_what_is_sure_is_confirmed_at_once() -> None:
    """The onset has been verified already."""
    assert Watched().see(flagged=True, sure=True) == "confirmed"


def test_evidence_that_cannot_localise_stays_a_suspicion() -> None:
    """However often it is seen."""
    assert Watched().see(9, flagged=True, sure=True, confirmable=False) == "suspect"


def test_a_suspicion_ends_after_three_evaluations_without_a_finding() -> None:
    """It need not be clear."""
    watched = Watched()
    watched.see(flagged=True)
    assert watched.see(HOLD - 1) == "suspect"
    assert watched.see() == "ok"


def test_a_confirmed_fault_ends_only_when_it_is_clear_three_times_in_a_row() -> None:
    """Neither slow nor clear is no news."""
    watched = Watched()
    watched.see(flagged=True, sure=True)
    assert watched.see(20) == "confirmed"
    watched.see(HOLD - 1, clear=True)
    watched.see()
    assert watched.see(HOLD - 1, clear=True) == "confirmed"
    assert watched.see(clear=True) == "recovered"
    assert watched.see(9, clear=True) == "recovered"


def test_a_finding_in_between_starts_the_count_anew() -> None:
    """Three in a row without one, of a suspicion and of a confirmed fault."""
    for sure, quiet, ended in ((False, {}, "ok"), (True, {"clear": True}, "recovered")):
        watched = Watched()
        before = watched.see(flagged=True, sure=sure, confirmable=sure)
        for _ in range(3):
            assert watched.see(HOLD - 1, **quiet) == before
            assert watched.see(flagged=True, confirmable=sure) == before
        assert watched.see(HOLD, **quiet) == ended


def test_an_hour_is_an_hour() -> None:
    """A time that lies a whole hour back no longer counts, and one a moment less does."""
    for apart_ns, state in ((FLAP_WITHIN_NS, "confirmed"), (FLAP_WITHIN_NS - 1, "flapping")):
        standing = SubjectState()
        for steps, at_ns in ((100, 0), (200, 1), (300, apart_ns)):
            standing.observe(flagged=True, sure=True, clear=False, steps=steps, at_ns=at_ns)
            after = standing.state
            for late in range(1, HOLD + 1):
                standing.observe(
                    flagged=False, sure=False, clear=True, steps=steps + 5 * late, at_ns=at_ns
                )
        assert after == state
    for since_ns, state in ((FLAP_WITHIN_NS - 1, "flapping"), (FLAP_WITHIN_NS, "recovered")):
        flapping = SubjectState(state="flapping", confirmed_at_ns=[7])
        for steps in range(HOLD):
            flapping.observe(flagged=False, sure=False, clear=True, steps=steps, at_ns=7 + since_ns)
        assert flapping.state == state


def test_the_third_time_within_an_hour_is_flapping() -> None:
    """One alarm, not many; and it ends an hour after the last time."""
    watched = Watched()
    states = []
    for _ in range(3):
        states.append(watched.see(flagged=True, sure=True))
        watched.see(HOLD, clear=True)
    assert states == ["confirmed", "confirmed", "flapping"]
    assert watched.see(50, clear=True) == "flapping"
    watched.steps += FLAP_WITHIN_NS // 10**9
    assert watched.see(clear=True) == "recovered"


def test_three_times_in_a_day_are_three_times() -> None:
    """Hours apart."""
    watched = Watched()
    for _ in range(3):
        assert watched.see(flagged=True, sure=True) == "confirmed"
        watched.see(HOLD, clear=True)
        watched.steps += FLAP_WITHIN_NS // 10**9


def test_a_suspicion_after_a_recovery_falls_back_to_recovered() -> None:
    """Not to ok: it was slow once."""
    watched = Watched()
    watched.see(flagged=True, sure=True)
    watched.see(2 * HOLD, clear=True)
    assert watched.see(flagged=True) == "suspect"
    assert watched.see(HOLD) == "recovered"


FLAGS = st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans())
REPORTED = st.lists(FLAGS, max_size=60)


@given(REPORTED)
def test_whatever_happens_the_states_follow_each_other_in_order(
    reported: list[tuple[bool, bool, bool, bool]],
) -> None:
    """Nothing recovers that was not confirmed, and nothing confirmed is forgotten; memory is
    bounded."""
    allowed = {
        "ok": {"ok", "suspect", "confirmed"},
        "suspect": {"ok", "suspect", "confirmed", "flapping", "recovered"},
        "confirmed": {"confirmed", "recovered"},
        "recovered": {"recovered", "suspect", "confirmed", "flapping"},
        "flapping": {"flapping", "recovered"},
    }
    watched = Watched()
    for flagged, sure, clear, confirmable in reported:
        before = watched.standing.state
        after = watched.see(flagged=flagged, sure=sure, clear=clear, confirmable=confirmable)
        assert after in allowed[before]
        if before in ("ok", "recovered") and not (flagged or sure):
            assert after == before
        assert len(watched.standing.flagged_at) <= 20 // EVERY + 1


@given(REPORTED, st.data())
def test_more_findings_never_end_in_less(
    reported: list[tuple[bool, bool, bool, bool]], data: st.DataObject
) -> None:
    """A finding in place of none confirms no later."""
    rank = {"ok": 0, "recovered": 0, "suspect": 1, "confirmed": 2, "flapping": 2}
    watched, worse = Watched(), Watched()
    extra = data.draw(st.lists(st.booleans(), min_size=len(reported), max_size=len(reported)))
    seen = False
    for (flagged, sure, _, _), more in zip(reported, extra, strict=True):
        watched.see(flagged=flagged, sure=sure)
        worse.see(flagged=flagged or more, sure=sure)
        seen = seen or rank[watched.standing.state] == 2
        if seen:
            assert rank[worse.standing.state] == 2
