"""What people read in chat and on the pager, rendered by Alertmanager's own program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, Program

TEMPLATES = ROOT / "alerts" / "templates" / "*.tmpl"
NAMES = (
    "straggler.slack.title",
    "straggler.slack.text",
    "straggler.plain.subject",
    "straggler.plain.text",
    "straggler.pagerduty.description",
    "straggler.pagerduty.details",
)


def alert(
    name: str, status: str = "firing", rank: int = 0, links: dict[str, str] | None = None
) -> dict[str, Any]:
    labels = {"alertname": name, "severity": "critical", "run_id": "r1", "job_name": "llm"}
    return {
        "status": status,
        "labels": labels | {"rank": str(rank)},
        "annotations": {"summary": f"Sum {rank}", "description": f"Tell {rank}.", **(links or {})},
        "startsAt": "2026-11-22T03:00:00Z",
        "endsAt": "0001-01-01T00:00:00Z" if status == "firing" else "2026-11-22T04:00:00Z",
    }


def render(amtool: Program, folder: Path, name: str, *alerts: dict[str, Any]) -> str:
    def common(key: str) -> dict[str, str]:
        return {k: v for k, v in alerts[0][key].items() if all(a[key].get(k) == v for a in alerts)}

    fires = any(each["status"] == "firing" for each in alerts)
    data = {
        "receiver": "chat",
        "status": "firing" if fires else "resolved",
        "alerts": alerts,
        "groupLabels": {"run_id": "r1", "job_name": "llm"},
        "commonLabels": common("labels"),
        "commonAnnotations": common("annotations"),
    }
    (folder / "data.json").write_text(json.dumps(data))
    ran = amtool(
        *("template", "render", f"--template.glob={TEMPLATES}"),
        f'--template.text={{{{ template "{name}" . }}}}',
        f"--template.data={folder / 'data.json'}",
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_the_title_says_what_how_many_and_whose(amtool: Program, tmp_path: Path) -> None:
    """One kind of alert is named; of several it is the run alone."""
    one = alert("StragglerRankLost", rank=3)
    two = alert("StragglerRankLost", rank=4)
    other = alert("StragglerNoData")
    titles = [
        render(amtool, tmp_path, "straggler.slack.title", *alerts)
        for alerts in ((one, two), (one, other), (alert("StragglerRankLost", "resolved"),))
    ]
    assert titles == [
        "[FIRING:2] StragglerRankLost run r1 (llm)",
        "[FIRING:2] Straggler run r1 (llm)",
        "[RESOLVED] StragglerRankLost run r1 (llm)",
    ]


@pytest.mark.parametrize(("name", "mark"), [("slack", "• "), ("plain", "- ")])
def test_ten_alerts_are_listed_and_the_rest_is_counted(
    name: str, mark: str, amtool: Program, tmp_path: Path
) -> None:
    """Those that fire first, each with its words."""
    alerts = [alert("StragglerRankLost", rank=rank) for rank in range(13)]
    text = render(amtool, tmp_path, f"straggler.{name}.text", *alerts)
    lines = text.splitlines()
    assert lines[0] == f"{mark}critical: Sum 0. Tell 0."
    assert (len(lines), lines[-1]) == (11, "and 3 more firing")
    ten = render(amtool, tmp_path, f"straggler.{name}.text", *alerts[:10])
    assert len(ten.splitlines()) == 10


def test_what_has_ended_stands_below_what_fires(amtool: Program, tmp_path: Path) -> None:
    """In one message."""
    ended = alert("StragglerRankLost", "resolved", rank=1)
    text = render(
        amtool, tmp_path, "straggler.plain.text", ended, alert("StragglerRankLost", rank=2)
    )
    assert text.splitlines() == ["- critical: Sum 2. Tell 2.", "- resolved: Sum 1"]


@pytest.mark.parametrize("name", ["straggler.slack.text", "straggler.plain.text"])
def test_what_is_over_is_told_in_the_past_tense(name: str, amtool: Program, tmp_path: Path) -> None:
    """It says nothing of a run that has ended as if it went on."""
    past = {"resolved": "Rank 3 slowed down run r1"}
    ended = alert("StragglerRankStraggling", "resolved", rank=3, links=past)
    assert render(amtool, tmp_path, name, ended)[2:] == "resolved: Rank 3 slowed down run r1"


def test_links_that_all_share_are_named(amtool: Program, tmp_path: Path) -> None:
    """Those that are there."""
    links = {
        "page_url": "https://c.example/#run=r1",
        "runbook_url": "https://r.example/p#x",
        "silence_url": "https://a.example/s",
    }
    alerts = [alert("StragglerRunHung", links=links)]
    text = render(amtool, tmp_path, "straggler.plain.text", *alerts)
    assert text.splitlines()[1:] == [
        "Page: https://c.example/#run=r1",
        "Runbook: https://r.example/p#x",
        "Silence: https://a.example/s",
    ]
    text = render(amtool, tmp_path, "straggler.slack.text", *alerts)
    assert (
        "<https://c.example/#run=r1|Page> <https://r.example/p#x|Runbook> "
        "<https://a.example/s|Silence>"
    ) in text


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_given_up_is_never_called_resolved(
    name: str, amtool: Program, tmp_path: Path
) -> None:
    """Whoever routes it, and whatever stands beside it."""
    given_up = alert("StragglerRunForgotten", "resolved")
    assert "resolved" not in render(amtool, tmp_path, name, given_up).lower()
    assert "no longer reported" in render(amtool, tmp_path, name, given_up).lower()
    beside = alert("StragglerNoData", "resolved", rank=9)
    printed = render(amtool, tmp_path, name, given_up, beside).lower()
    assert "resolved: sum 0" not in printed
    assert "[resolved]" not in printed


def test_slack_reads_no_markup_in_a_name(amtool: Program, tmp_path: Path) -> None:
    """A run may be named <!channel>; what is not for Slack stays as it is."""
    one = alert("StragglerRankLost", links={"dashboard_url": "https://g.example/d?a=1&b=2"})
    one["labels"]["run_id"] = "<!channel>"
    one["annotations"]["summary"] = "rank 3 of <https://x.example|run> & others"
    text = render(amtool, tmp_path, "straggler.slack.text", one)
    assert "rank 3 of &lt;https://x.example|run&gt; &amp; others" in text
    assert "<https://g.example/d?a=1&b=2|Dashboard>" in text
    title = render(amtool, tmp_path, "straggler.slack.title", one)
    assert title == "[FIRING:1] StragglerRankLost run &lt;!channel&gt; (llm)"
    assert "<https://x.example|run> & others" in render(
        amtool, tmp_path, "straggler.plain.text", one
    )
