"""Who went first when a run fails: killed without a word, or with the first traceback."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.views.answer import answer_of
from otel_straggler.collector.views.first_failure import FirstFailure, first_failure
from otel_straggler.collector.views.run_summary import read_summary, summary_value
from otel_straggler.collector.views.world_view import RankHeartbeats

from . import made

NAN = np.nan


def failed_heartbeats(
    ends_s: list[float], received_s: list[float], **changes: Any
) -> RankHeartbeats:
    """Of eight ranks a node: how long ago each failed (NaN: without a word), and was heard."""
    outcomes = ["" if np.isnan(end_s) else "failed" for end_s in ends_s]
    values = {"outcomes": outcomes, "heartbeat_age_s": np.array(received_s), **changes}
    return made.heartbeats_of(made.table_of(len(ends_s)), ended_age_s=np.array(ends_s), **values)


def test_a_killed_rank_went_first_and_the_others_failed_for_that() -> None:
    """It was last heard before anybody failed."""
    heartbeats = failed_heartbeats([50.0, 50.1, 50.2, NAN, 49.0, 50.3, 50.2, 50.1], [51.0] * 8)
    result = first_failure(heartbeats)
    assert result == FirstFailure([3], "node-0", is_silent=True, n_later=7)
    assert result.sentence == "rank 3 on node-0 died silently first; 7 ranks failed after that."


def test_the_first_traceback_counts_where_the_launcher_killed_the_rest() -> None:
    """Those were heard of after it."""
    ends = [NAN, NAN, 60.0, NAN, 30.0, NAN, NAN, NAN]
    result = first_failure(failed_heartbeats(ends, [55.0] * 8))
    assert result == FirstFailure([2], "node-0", is_silent=False, n_later=1)


def test_a_lost_node_is_named() -> None:
    """All its ranks went together."""
    result = first_failure(failed_heartbeats([50.0] * 8 + [NAN] * 8, [55.0] * 16))
    assert result is not None
    assert (result.who, result.n_later) == ("ranks 8 to 15 on node-1", 8)


def ends_of(unsaid_s: float) -> RankHeartbeats:
    """Rank 0 failed 50 s ago, rank 1 ended without saying how."""
    outcomes = ["failed", "unknown"]
    return failed_heartbeats([50.0, unsaid_s], [49.0, 49.0], outcomes=outcomes)


def test_a_rank_that_exits_before_others_fail_went_first() -> None:
    """As by sys.exit(1): the others fail because it is gone. Later it is no cause, and ends that
    lie close together have no order."""
    result = first_failure(ends_of(51.0))
    assert result == FirstFailure([1], "node-0", is_silent=False, n_later=1, has_left=True)
    assert result.sentence == (
        "rank 1 on node-0 exited first, without reporting why; 1 rank failed after that."
    )
    assert "sys.exit()" in result.facts()["advice"][0]
    assert first_failure(ends_of(50.1)) is None
    assert first_failure(ends_of(49.0)) == FirstFailure([0], "node-0", is_silent=False, n_later=0)


def test_a_rank_that_exits_before_its_launcher_ends_the_others_went_first() -> None:
    """Nobody has failed by word; a rank that left with the others is no cause."""
    outcomes = ["preempted", "unknown", "preempted"]
    first = failed_heartbeats([50.0, 51.0, 50.1], [49.0] * 3, outcomes=outcomes)
    result = first_failure(first)
    assert result is not None
    assert result.sentence == "rank 1 on node-0 exited first, without reporting why."
    last = failed_heartbeats([50.0, 49.0, 50.1], [49.0] * 3, outcomes=outcomes)
    assert first_failure(last) is None


@pytest.mark.parametrize(
    ("ends", "received"),
    [
        ([50.0] * 8, [51.0] * 8),
        ([50.0, 50.1, 50.15, 50.2, 50.2, 49.0, 50.2, 50.2], [51.0] * 8),
        ([50.0] + [NAN] * 15, [55.0] * 16),
        ([NAN] * 8, [55.0] * 8),
    ],
    ids=["all at once", "most at once", "most words were lost", "nobody failed"],
)
def test_what_nobody_knows_is_not_said(ends: list[float], received: list[float]) -> None:
    """Times come from several hosts; and many ranks without a word are no single culprit."""
    assert first_failure(failed_heartbeats(ends, received)) is None


def test_signs_that_do_not_tell_ends_tell_nobody() -> None:
    """A history of before has none."""
    heartbeats = failed_heartbeats([50.0, NAN], [51.0, 51.0], outcomes=["", ""])
    assert first_failure(heartbeats) is None


def test_a_failed_run_says_who_went_first_and_where_to_look() -> None:
    """In the headline, with the verdict that stood after it; a finished run does not."""
    heartbeats = failed_heartbeats([50.0, 50.1, 50.2, NAN, 49.0, 50.3, 50.2, 50.1], [51.0] * 8)
    seen = made.seen(heartbeats=heartbeats, hang=made.result_of(state="failed"))
    reported = answer_of(seen)
    assert reported["headline"] == "The run has failed; rank 3 on node-0 died silently first"
    assert reported["sentence"].startswith(
        "The run has failed. Rank 3 on node-0 died silently first; 7 ranks failed after that."
    )
    assert (reported["rank"], reported["node"]) == (3, "node-0")
    assert "out of memory" in reported["advice"][0]
    assert (
        "first"
        not in answer_of(made.seen(heartbeats=heartbeats, hang=made.result_of(state="finished")))[
            "headline"
        ]
    )


def test_who_went_first_is_kept_in_the_history() -> None:
    heartbeats = failed_heartbeats([50.0, 50.1, 50.2, NAN, 49.0, 50.3, 50.2, 50.1], [51.0] * 8)
    value = summary_value(made.seen(heartbeats=heartbeats, hang=made.result_of(state="failed")))
    kept = read_summary(value, where="h").heartbeats
    assert kept is not None
    assert first_failure(kept) == first_failure(heartbeats)
