"""Text of a verdict: who, where, how much, since when, and the cost."""

from __future__ import annotations

import math

from otel_straggler.model.causes import CAUSES, reason_text
from otel_straggler.model.verdict import Verdict, time_text

_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))


def sentence(verdict: Verdict, *, is_over: bool = False, is_still_slow: bool = False) -> str:
    """One or two sentences; in the past tense if ``is_over``, once the run has ended.
    ``is_still_slow``: the subject has recovered from this cause, and not from another.

    >>> sentence(Verdict(run_id="r", subject_id="rank/5", scope="rank", rank=5, node="node-1",
    ...     section="forward", cause="slow_gpu", state="confirmed", slowdown=1.5, since_step=40,
    ...     gpu_seconds_lost_per_hour=1440.0, n_peers=7, on_gpu=True))
    'rank 5 on node-1 takes 1.50x as long as its 7 peers in forward since step 40: slow GPU. The \
job loses 24 min of GPU time per hour.'
    """
    if is_still_slow:
        reason = reason_text(verdict.cause, on_gpu=verdict.is_on_gpu)
        ended = "" if verdict.cause == "unknown" else f", but no longer for this reason: {reason}"
        return f"{subject(verdict)} is still slow{ended}."
    if verdict.state in ("ok", "recovered"):
        return f"{subject(verdict)} {'was' if is_over else 'is'} as fast as before again."
    what = _what(verdict, is_over=is_over)
    parts = [f"{subject(verdict)} {what}{_since(verdict)}: {_why(verdict)}."]
    if verdict.state == "flapping":
        parts.append("It came and went." if is_over else "It comes and goes.")
    if verdict.scope == "host" and verdict.evidence == "synchronised" and verdict.is_localised:
        parts.append(
            "Its ranks waited for each other there: one of them may have been the cause."
            if is_over
            else "Its ranks wait for each other there: one of them may be the cause."
        )
    if verdict.gpu_seconds_lost_per_hour >= 1.0:
        lost = _duration(verdict.gpu_seconds_lost_per_hour)
        what = time_text(on_gpu=verdict.is_on_gpu)
        parts.append(f"The job {'lost' if is_over else 'loses'} {lost} of {what} per hour.")
    return " ".join(parts)


def subject(verdict: Verdict) -> str:
    group = f"{verdict.group}/" if verdict.group else ""
    if verdict.scope == "rank":
        return f"rank {group}{verdict.rank}" + (f" on {verdict.node}" if verdict.node else "")
    if verdict.scope == "host":
        return f"host {verdict.node}"
    if verdict.scope == "role":
        return f"role {group}{verdict.role}"
    return f"the run {verdict.group}".rstrip()


def _what(verdict: Verdict, *, is_over: bool) -> str:
    comes, wait, is_, takes, it_would = (
        ("came", "waited", "was", "took", "it would have if all had done")
        if is_over
        else ("comes", "wait", "is", "takes", "it would if all did")
    )
    if verdict.cause == "late_arrival":
        excess = f"{100.0 * (verdict.slowdown - 1.0):.0f} %"
        return f"{comes} late to its {verdict.n_peers} peers: they {wait} {excess} of a step"
    if math.isnan(verdict.slowdown):
        return f"{is_} out of balance"
    compared = _compared(verdict, f"{it_would} the same work")
    return f"{takes} {verdict.slowdown:.2f}x as long as {compared}"


def _compared(verdict: Verdict, equal: str) -> str:
    where = f" in {verdict.section}" if verdict.section else ""
    if verdict.n_peers and verdict.scope in ("rank", "host"):
        return f"its {verdict.n_peers:,} peers{where}"
    if CAUSES[verdict.cause].is_imbalance:
        return f"{equal}{where}"
    return f"before{where}"


def _since(verdict: Verdict) -> str:
    if verdict.began == "born":
        return " since monitoring began"
    return "" if verdict.since_step is None else f" since step {verdict.since_step}"


def _why(verdict: Verdict) -> str:
    if not verdict.is_localised and verdict.scope == "host":
        return "a slow host, or different work: no rank reported its role (set_topology)"
    if not verdict.is_localised:
        why = verdict.detail if verdict.scope == "run" else ""
        return f"cannot localize, {why or 'the timings do not separate culprit from victims'}"
    if verdict.cause == "unknown" and verdict.detail:
        return verdict.detail
    is_named = verdict.evidence in ("events", "cupti", "collective")
    basis = f" ({verdict.evidence})" if is_named else ""
    if verdict.cause == "late_arrival" and verdict.evidence == "cupti":
        return f"late arrival{basis}, its own work on the GPU is not slow"
    detail = f", {verdict.detail}" if verdict.detail else ""
    return reason_text(verdict.cause, on_gpu=verdict.is_on_gpu) + basis + detail


def _duration(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            value = seconds / size
            return f"{value:.0f} {unit}" if value >= 9.95 else f"{value:.1f} {unit}"
    return f"{seconds:.1f} s"
