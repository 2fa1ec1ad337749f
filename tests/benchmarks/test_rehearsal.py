"""What a rehearsal of alerts calls missing, false, and too much."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.rehearsal.__main__ import MAX_MESSAGES, false_ones, rows_of, table
from benchmarks.rehearsal.told import Due, Played, Told, hear
from otel_straggler.demo.receiver import Received

DUE = Due(alert="StragglerRunHung", run_id="r", from_s=100.0, until_s=160.0)


def message(at_s: float, status: str, name: str = DUE.alert, began_s: int = 101) -> Received:
    """Of one alert of the run."""
    times = {"startsAt": f"1970-01-01T00:0{began_s // 60}:{began_s % 60:02}Z"}
    alert = {
        "status": status,
        "labels": {"alertname": name, "run_id": "r"},
        "annotations": {"summary": "s"},
        **times,
        "endsAt": "1970-01-01T00:02:42Z",
    }
    return Received(at_s, "/pager", {"alerts": [alert]})


class Stage:
    """Two webhooks that have heard these."""

    def __init__(self, rules: list[Received], collector: list[Received]) -> None:
        self._received = {"rules": rules, "collector": collector}

    def told(self, way: str, run_id: str = "") -> list[Told]:
        result: list[Told] = []
        for one in self._received[way] if run_id == "r" else ():
            for alert in one.payload["alerts"]:
                hear(result, one, alert)
        return result


def rows(stage: Any, played: Played) -> list[dict[str, Any]]:
    return rows_of(stage, "hung", played)


def test_an_alert_that_came_and_went_has_its_times() -> None:
    """From the begin and the end of its cause."""
    heard = [message(106.0, "firing"), message(163.5, "resolved")]
    [row] = rows(Stage(heard, heard), Played(runs=("r",), due=[DUE]))
    assert row["wrong"] == ""
    assert row["rules"] == {"fired_after_s": 6.0, "over_after_s": 3.5, "messages": 2}
    assert "6.0 / 6.0" in table([row])


@pytest.mark.parametrize(
    ("heard", "wrong"),
    [
        ([], "the collector did not tell of it"),
        ([message(106.0, "firing")], "by the collector it is not over"),
        ([message(50.0, "firing", began_s=49)], "the collector did not tell of it"),
        (
            [message(106.0, "firing")] * MAX_MESSAGES + [message(163.5, "resolved")],
            f"{MAX_MESSAGES + 1} messages by the collector",
        ),
    ],
)
def test_what_is_missing_or_too_much_is_wrong(heard: list[Received], wrong: str) -> None:
    """Of each way by itself; an alert of before the cause is another."""
    well = [message(106.0, "firing"), message(163.5, "resolved")]
    [row] = rows(Stage(well, heard), Played(runs=("r",), due=[DUE]))
    assert row["wrong"] == wrong


def test_what_was_neither_due_nor_allowed_is_false() -> None:
    """By either way."""
    heard = [message(106.0, "firing"), message(107.0, "firing", "StragglerRankLost")]
    stage: Any = Stage(heard, [])
    assert false_ones(stage, "hung", Played(runs=("r",), due=[DUE])) == [
        "hung: StragglerRankLost was told by the rules"
    ]
    allowed = Played(runs=("r",), due=[DUE], allowed=("StragglerRankLost",), problem="slow")
    assert false_ones(stage, "hung", allowed) == ["hung: slow"]
