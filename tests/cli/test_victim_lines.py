"""Who waits for a slow rank is not listed beside it."""

from __future__ import annotations

from typing import Any

from otel_straggler.cli.verdict_lines import no_wait_line, without_victims

RANKS = ("0", "1", "2", "3")
CALLED = {
    "subject_id": "rank/a/2", "scope": "rank", "rank": 2, "node": "a", "group": "",
    "state": "confirmed", "gpu_seconds_lost_per_hour": 60.0, "pages": True,
}  # fmt: skip


def window(backward: dict[str, float], **kinds: str) -> dict[str, Any]:
    """Of four ranks; rank 2 is slow in forward, and in backward the scores are as given."""
    scores = {"forward": {"0": 1.0, "1": 1.0, "2": 0.5, "3": 1.0}, "backward": backward}
    listed = [
        {"rank": int(rank), "group": "", "section": name}
        for name, column in scores.items()
        for rank, score in column.items()
        if score < 0.75
    ]
    return {
        "group": "",
        "sections": {"forward": "compute", "backward": "compute", **kinds},
        "section_relative_scores": scores,
        "gpu_relative_scores": dict.fromkeys(RANKS),
        "ranks": {rank: {"node": "a"} for rank in RANKS},
        "stragglers": listed,
    }


WAITING = {"0": 0.3, "1": 0.3, "2": 1.0, "3": 0.35}


def test_those_who_wait_for_a_called_rank_are_told_apart() -> None:
    """As under DDP, whose gradients are averaged in backward."""
    shown, lines = without_victims({"verdicts": [CALLED]}, window(WAITING))
    assert [(one["rank"], one["section"]) for one in shown["stragglers"]] == [(2, "forward")]
    (line,) = lines
    assert line.plain == (
        "ranks 0-1, 3 take longer than rank 2 in backward: "
        "they may be waiting there for the slow rank"
    )


def test_a_called_host_stands_for_its_ranks() -> None:
    """All of which the others wait for."""
    host = {**CALLED, "subject_id": "host/b", "scope": "host", "rank": None, "node": "b"}
    reported = window(WAITING)
    reported["ranks"]["2"]["node"] = "b"
    assert len(without_victims({"verdicts": [host]}, reported)[1]) == 1


def test_without_a_verdict_everybody_stays_listed() -> None:
    """A low score alone does not say who waits for whom."""
    for verdicts in [], [{**CALLED, "state": "suspect"}], [{**CALLED, "group": "actor"}]:
        shown, lines = without_victims({"verdicts": verdicts}, window(WAITING))
        assert len(shown["stragglers"]) == 4
        assert lines == []


def test_one_rank_that_is_slow_elsewhere_is_no_victim() -> None:
    """Where all wait, most ranks are slower than the one they wait for."""
    shown, lines = without_victims(
        {"verdicts": [CALLED]}, window({"0": 0.98, "1": 0.3, "2": 1.0, "3": 0.97})
    )
    assert {one["rank"] for one in shown["stragglers"]} == {1, 2}
    assert lines == []


def test_a_run_in_which_nobody_says_where_ranks_wait_is_told_so() -> None:
    """Else "no straggler" would be read as "nobody is slow"."""
    (line,) = no_wait_line(window(WAITING))
    assert line.plain.startswith("no section of kind wait")
    assert not list(no_wait_line(window(WAITING, gradient_sync="wait")))
    by_gpu = {**window(WAITING), "gpu_relative_scores": {"0": 1.0}}
    assert not list(no_wait_line(by_gpu))
    assert not list(no_wait_line({**window(WAITING), "ranks": {"0": {"node": "a"}}}))
