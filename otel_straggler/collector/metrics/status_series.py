"""Liveness, and the input of the alerts, as series. Healthy ranks may be folded
(`collector/metrics/series_choice.py`), but never series that alert rules read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import get_args

from otel_straggler import semconv
from otel_straggler.alerts.rule import FleetStatus, RunStatus
from otel_straggler.client.sender import DROP_REASONS
from otel_straggler.collector.metrics.families import (
    MAX_LABELLED,
    Families,
    label,
    labels,
    rank_labels,
)
from otel_straggler.collector.metrics.series_choice import EVERYTHING, RankKey, ShownLife
from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.rank_status import RankStatus
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import LATE, LOST, RANK_STATES, STUCK, RunState
from otel_straggler.model.alert import Maintenance
from otel_straggler.model.rank import Source

_MAX_SECTIONS = 20
_STATES: tuple[RunState, ...] = get_args(RunState)


def status_families(view: RunView, constant_labels: str, shown: ShownLife = EVERYTHING) -> Families:
    """The liveness of one run: per rank, and of the run as a whole."""
    families = Families()
    for group, world in view.worlds.items():
        for rank, its in world.ranks.items():
            _add_rank(families, its, view.ahead_s, constant_labels, shown, (group, rank))
        _add_world(families, view, group, world, constant_labels)
        hang = view.hangs.get(group)
        if hang is not None:
            _add_states(families, world, hang, constant_labels, shown, group)
    families.extend(shown.folded(view.run_id, constant_labels))
    return families


def status_content(view: RunView) -> tuple[object, ...]:
    """Changes with :func:`status_families`. Cost: O(ranks), some bytes each."""
    return (
        view.ahead_s,
        tuple(view.worlds.items()),
        tuple(
            (group, its.ranks.tobytes(), its.rank_states.tobytes(), its.timeout_s.tobytes())
            for group, its in view.hangs.items()
        ),
    )


def in_trouble(view: RunView, flagged: Iterable[RankKey]) -> dict[RankKey, int]:
    """Ranks in trouble by urgency: culprits of hangs, slow ranks, then lost, stuck, late ones."""
    trouble: dict[RankKey, int] = {}
    for group, its in view.hangs.items():
        for soon, state in enumerate((LOST, STUCK, LATE), start=1):
            ranks = its.ranks[its.rank_states == state].tolist()
            trouble.update(((group, rank), soon) for rank in ranks)
        culprits = its.ranks[its.blame.culprits].tolist() if its.blame else ()
        trouble.update(((group, rank), 0) for rank in culprits)
    return trouble | dict.fromkeys(flagged, 0)


def _add_states(
    families: Families,
    world: WorldStatus,
    its: HangStatus,
    constant_labels: str,
    shown: ShownLife,
    group: str,
) -> None:
    timeouts_s = its.timeout_s.tolist()
    for rank, code, timeout_s in zip(
        its.ranks.tolist(), its.rank_states.tolist(), timeouts_s, strict=True
    ):
        status = world.ranks.get(rank)
        if status is None:
            continue
        text = f"{rank_labels(status.source)},{constant_labels}"
        if shown.shows(semconv.RANK_STATE, (group, rank)):
            families.add(semconv.RANK_STATE, f"{label('state', RANK_STATES[code])},{text}", 1)
        if shown.shows(semconv.RANK_TIMEOUT, (group, rank)):
            families.add(semconv.RANK_TIMEOUT, text, timeout_s)


def _add_rank(
    families: Families,
    rank: RankStatus,
    ahead_s: float,
    constant_labels: str,
    shown: ShownLife,
    key: RankKey,
) -> None:
    text = f"{rank_labels(rank.source)},{constant_labels}"
    for metric, at_s in (
        (semconv.LAST_HEARTBEAT, rank.sent_at_s),
        (semconv.LAST_PROGRESS, rank.progress_at_s),
    ):
        here_s = rank.here(at_s)
        if here_s is not None and shown.shows(metric, key):
            families.add(metric, text, here_s + ahead_s)
    if rank.step is not None and shown.shows(semconv.RANK_STEP, key):
        families.add(semconv.RANK_STEP, text, rank.step)
    finished_at_s = rank.here(rank.finished_at_s)
    if finished_at_s is not None:
        outcome = label("outcome", rank.outcome or "unknown")
        families.add(semconv.RANK_FINISHED, f"{outcome},{text}", finished_at_s + ahead_s)
    for reason, count in rank.dropped.items():
        families.add(semconv.RECORDS_DROPPED, f"{label('reason', reason)},{text}", count)
    folded = sum(rank.folded.values())
    if folded:
        families.add(semconv.RECORDS_FOLDED, text, folded)
    if shown.shows(semconv.RANK_INFO, key):
        description = _description(rank.source, rank.gpu_tier, rank.gpu_reason)
        families.add(semconv.RANK_INFO, f"{description},{text}", 1)


@lru_cache(maxsize=MAX_LABELLED)
def _description(source: Source, gpu_tier: str, gpu_reason: str) -> str:
    """Other attributes of a rank, named as OpenTelemetry's translator does."""
    known: dict[str, object] = {
        semconv.RUN_ATTEMPT: source.attempt,
        semconv.SESSION_ID: source.session_id,
        semconv.LOCAL_RANK: source.local_rank if source.local_rank >= 0 else "",
        semconv.GPU_UUID: source.device,
        semconv.GPU_TIMING_TIER: gpu_tier,
        semconv.GPU_TIMING_REASON: gpu_reason,
    }
    known.update((semconv.PARALLEL_RANK[d], rank) for d, rank in source.parallel)
    return labels(**{str(key).replace(".", "_"): value for key, value in known.items()})


def _add_world(
    families: Families, view: RunView, group: str, world: WorldStatus, constant_labels: str
) -> None:
    ahead_s = view.ahead_s
    job = next((rank.source.job for rank in world.ranks.values()), "")
    text = f"{labels(run_id=view.run_id, job_name=job, group=group)},{constant_labels}"
    families.add(semconv.RUN_WORLD_SIZE, text, max(world.world_size, len(world.ranks)))
    families.add(semconv.RUN_STARTED, text, world.began_at_s + ahead_s)
    for section, ranks in _open_sections(world).items():
        families.add(semconv.RUN_OPEN_SECTIONS, f"{label('section', section)},{text}", ranks)
    finished_at_s = world.finished_at_s
    if finished_at_s is not None:
        families.add(semconv.RUN_FINISHED, text, finished_at_s + ahead_s)
    _add_extremes(families, world, ahead_s, text)


def _add_extremes(families: Families, world: WorldStatus, ahead_s: float, text: str) -> None:
    """Extremes over all ranks: over 10,000 series they would take Prometheus seconds."""
    ranks_left = [rank for rank in world.ranks.values() if rank.finished_at_s is None]
    for metric, times in (
        (semconv.RUN_OLDEST_HEARTBEAT, (rank.here(rank.sent_at_s) for rank in ranks_left)),
        (semconv.RUN_OLDEST_PROGRESS, (rank.here(rank.progress_at_s) for rank in ranks_left)),
    ):
        known = [at_s for at_s in times if at_s is not None]
        if known:
            families.add(metric, text, min(known) + ahead_s)
    steps = [rank.step for rank in world.ranks.values() if rank.step is not None]
    if steps:
        families.add(semconv.RUN_STEP, text, max(steps))


def goodput_families(view: RunView, constant_labels: str) -> Families:
    """What each group got for its time. Never folded: some twenty series."""
    families = Families()
    for group, its in view.goodputs.items():
        text = labels(run_id=view.run_id, job_name=view.jobs.get(group, ""), group=group)
        text = f"{text},{constant_labels}"
        for name, ns in its.time_ns.items():
            if name not in (semconv.PRODUCTIVE, semconv.EXCLUDED) and ns:
                families.add(semconv.RUN_LOST, f"{label('reason', name)},{text}", ns / 1e9)
        families.add(semconv.RUN_PRODUCTIVE, text, its.time_ns.get(semconv.PRODUCTIVE, 0) / 1e9)
        if its.wall_ns:
            families.add(semconv.RUN_GOODPUT, text, its.goodput)
        for length_s, goodput in its.rolling:
            window = label("window", round(length_s))
            families.add(semconv.RUN_ROLLING_GOODPUT, f"{window},{text}", goodput)
    return families


def _open_sections(world: WorldStatus) -> dict[str, int]:
    """Number of running ranks in each; the rarest are summed up."""
    ranks_left = (rank for rank in world.ranks.values() if rank.finished_at_s is None)
    counted = Counter(rank.open_section for rank in ranks_left if rank.open_section)
    shown = dict(counted.most_common(_MAX_SECTIONS))
    others = counted.total() - sum(shown.values())
    return {**shown, semconv.OTHER_SECTION: others} if others else shown


# --- input of the alerts -----------------------------------------------------------------------


def alert_families(run: RunStatus, constant_labels: str) -> Families:
    """One group of a run: some thirty series, at most 20 culprits, and a few slow ranks."""
    families = Families()
    text = f"{labels(run_id=run.run_id, job_name=run.job, group=run.group)},{constant_labels}"
    described = labels(team=run.team, attempt=run.attempt)
    families.add(semconv.RUN_INFO, f"{described},{text}", 1)
    families.add(semconv.RUN_PAGES, text, int(run.pages))
    families.add(semconv.RUN_SCORING_FAILING, text, int(run.is_failing))
    named = labels(ranks=run.unscored_text)
    families.add(semconv.RUN_RANKS_UNSCORED, f"{named},{text}", run.unscored)
    if run.failed_at_s is not None:
        sentence = labels(sentence=run.failure_text)
        families.add(semconv.RUN_FAILED, f"{sentence},{text}", run.failed_at_s)
    for reason, count in {**dict.fromkeys(DROP_REASONS, 0), **run.dropped}.items():
        families.add(semconv.RUN_RECORDS_DROPPED, f"{label('reason', reason)},{text}", count)
    _add_slow(families, run, text, constant_labels)
    if run.has_known_state:
        _add_run_states(families, run, text)
    if run.ranks:
        _add_hang(families, run, text, constant_labels)
    return families


def collector_families(
    watched: FleetStatus, maintenance: Iterable[Maintenance], constant_labels: str
) -> Families:
    families = Families()
    families.add(semconv.COLLECTOR_PAGES, constant_labels, int(watched.pages))
    for each in maintenance:
        text = labels(node=each.node, reason=each.reason, by=each.by)
        families.add(semconv.MAINTENANCE_UNTIL, f"{text},{constant_labels}", each.until_ns * 1e-9)
    return families


def _add_run_states(families: Families, run: RunStatus, text: str) -> None:
    for state in _STATES:
        families.add(semconv.RUN_STATE, f"{label('state', state)},{text}", int(run.state == state))
    for name, count in run.ranks.items():
        families.add(semconv.RUN_RANKS, f"{label('state', name)},{text}", count)


def _add_slow(families: Families, run: RunStatus, text: str, constant_labels: str) -> None:
    """Who is named where many are counted, and the own best of degraded ranks."""
    for crowd in run.crowds:
        about = labels(
            alert=crowd.alert, severity=crowd.severity, cause=crowd.cause, worst=crowd.worst
        )
        families.add(semconv.RUN_SLOW, f"{about},{text}", crowd.count)
    for score in run.degraded:
        if score.best_text:
            named = labels(
                section=score.section,
                text=score.best_text,
                run_id=run.run_id,
                job_name=run.job,
                group=run.group,
                rank=score.rank,
                node=score.node,
                role=score.role,
            )
            families.add(semconv.RANK_BEST, f"{named},{constant_labels}", score.best_s)


def _add_hang(families: Families, run: RunStatus, text: str, constant_labels: str) -> None:
    families.add(semconv.RUN_HUNG, text, int(run.is_hung))
    if run.why is not None:
        reported = labels(why=run.why, sentence=run.hang_text, culprits=run.culprits_text)
        families.add(semconv.RUN_HANG_INFO, f"{reported},{text}", 1)
    for culprit in run.culprits:
        named = labels(
            why=culprit.why,
            run_id=run.run_id,
            job_name=run.job,
            group=run.group,
            rank=culprit.rank,
            node=culprit.node,
            role=culprit.role,
        )
        families.add(semconv.RANK_CULPRIT, f"{named},{constant_labels}", 1)
    for timed_out in run.timed_out:
        named = labels(
            reason=timed_out.reason,
            run_id=run.run_id,
            job_name=run.job,
            group=run.group,
            rank=timed_out.rank,
            node=timed_out.node,
            role=timed_out.role,
        )
        families.add(semconv.RANK_TIMED_OUT, f"{named},{constant_labels}", timed_out.seconds)
