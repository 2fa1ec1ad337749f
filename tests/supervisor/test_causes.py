"""A webhook of Alertmanager, and a report, as causes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.errors import InputError
from otel_straggler.model.fleet_reports import FleetReport
from otel_straggler.supervisor.causes import (
    cause_json,
    cause_of_json,
    cause_of_report,
    read_webhook,
)

from .supervised import NOW_S, alert, alert_json, webhook


def test_an_alert_has_host_device_code_and_run() -> None:
    """Of the labels that collectors, DCGM and others use."""
    ours = alert("StragglerRankLost", node="n1", rank="7", run_id="llama")
    assert (ours.host, ours.device, ours.code, ours.run_id) == (
        "n1", "rank 7", "StragglerRankLost", "llama",
    )  # fmt: skip
    dcgm = alert("GpuXid", Hostname="n2", gpu="3", UUID="GPU-1", xid="79")
    assert (dcgm.host, dcgm.device, dcgm.code, dcgm.xid) == ("n2", "GPU-1", "xid_79", 79)
    assert cause_of_json(cause_json(dcgm)) == dcgm


def test_the_id_is_computed_and_never_believed() -> None:
    """It is the same however the time is written; another start is another cause."""
    one = alert_json(node="a")
    same = {**one, "startsAt": one["startsAt"].replace(".000Z", "+00:00"), "annotations": {}}
    later = alert_json(at_s=NOW_S + 1, node="a")
    first, second, third = read_webhook(webhook(one, same, later)).causes
    assert first.id == second.id != third.id
    forged = {**one, "fingerprint": "0123456789abcdef"}
    without = {key: value for key, value in one.items() if key != "fingerprint"}
    result = read_webhook(webhook(forged, without))
    assert (result.causes, result.rejected) == ((), {"fingerprint": 2})


@pytest.mark.parametrize(
    "change",
    [
        {"startsAt": "yesterday"},
        {"startsAt": None},
        {"startsAt": "2026-02-31T00:00:00Z"},
        {"status": "pending"},
        {"labels": {}},
        {"labels": {"alertname": "A", "n": 3}},
        {"labels": {"node": "a"}},
        {"labels": [1]},
        {"labels": {str(n): "x" for n in range(100)}},
    ],
)
def test_a_malformed_alert_is_counted_and_the_others_count(change: dict[str, Any]) -> None:
    """One of two."""
    result = read_webhook(webhook({**alert_json(node="a"), **change}, alert_json(node="b")))
    assert [cause.host for cause in result.causes] == ["b"]
    assert result.rejected == {"malformed": 1}


@pytest.mark.parametrize(
    "payload",
    [None, [], "x", {}, {"version": "3", "alerts": []}, {"version": "4"},
     {"version": "4", "alerts": {}}, {"version": "4", "alerts": [{}] * 1001}],
)  # fmt: skip
def test_what_is_no_webhook_of_version_4_is_refused(payload: Any) -> None:
    """With what was expected."""
    with pytest.raises(InputError, match=r"webhook: (version|alerts): got"):
        read_webhook(payload)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=8,
)


@given(
    st.lists(JSON, max_size=4),
    st.dictionaries(
        st.sampled_from(["labels", "annotations", "startsAt", "status", "fingerprint"]), JSON
    ),
)
def test_no_content_of_a_webhook_raises_anything_else(
    alerts: list[Any], change: dict[str, Any]
) -> None:
    """Whatever the alerts are."""
    result = read_webhook(webhook(*alerts, {**alert_json(node="a"), **change}))
    assert len(result.causes) + sum(result.rejected.values()) == len(alerts) + 1


def test_a_report_is_a_cause_whose_fields_are_labels() -> None:
    """An XID in its reason counts as one."""
    report = FleetReport(
        kind="rank_exited", id="1", run_id="r", attempt=2, node="n", rank=3, at_unix_s=NOW_S,
        reason="xid_48",
    )  # fmt: skip
    cause = cause_of_report(report)
    assert (cause.id, cause.name, cause.host, cause.device) == (
        "report:1", "rank_exited", "n", "rank 3",
    )  # fmt: skip
    assert (cause.xid, cause.code, cause.labels["attempt"]) == (48, "xid_48", "2")
