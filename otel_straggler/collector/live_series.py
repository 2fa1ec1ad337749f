"""Liveness as series. Of ranks that are well some may be folded (`publish/shown_life.py`); ranks in
trouble, and what the run as a whole says, are always seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from otel_straggler import semconv
from otel_straggler.collector.liveness import World
from otel_straggler.collector.rank_life import RankLife
from otel_straggler.model.rank import Source
from otel_straggler.publish.prometheus import MOST_LABELLED, Families, label, labels, rank_labels
from otel_straggler.publish.shown_life import EVERYTHING, RankKey, ShownLife
from otel_straggler.score.hangs.detector import HangStatus
from otel_straggler.score.hangs.states import LATE, LOST, RANK_STATES, STUCK

_MOST_SECTIONS = 20
LiveState: TypeAlias = tuple[tuple[object, ...], ...]


def live_families(
    run_id: str,
    worlds: Mapping[str, World],
    constant_labels: str,
    found: Mapping[str, HangStatus] | None = None,
    shown: ShownLife = EVERYTHING,
) -> Families:
    """The series of one run: per rank, and of the run as a whole.

    Args:
        found: who is stuck or lost, by group.
        shown: which ranks show what.
    """
    families = Families()
    for group, world in worlds.items():
        for rank, life in world.ranks.items():
            _add_rank(families, life, constant_labels, shown, (group, rank))
        _add_world(families, run_id, group, world, constant_labels)
        its = (found or {}).get(group)
        if its is not None:
            _add_states(families, world, its, constant_labels, shown, group)
    families.extend(shown.folded(run_id, constant_labels))
    return families


def live_state(worlds: Mapping[str, World], found: Mapping[str, HangStatus]) -> LiveState:
    """Changes when :func:`live_families` does. Cost: O(ranks), some bytes each."""
    return (
        tuple((group, world.attempt, world.n_words) for group, world in worlds.items()),
        tuple(
            (group, its.ranks.tobytes(), its.rank_states.tobytes(), its.timeout_s.tobytes())
            for group, its in found.items()
        ),
    )


def in_trouble(found: Mapping[str, HangStatus], flagged: Iterable[RankKey]) -> dict[RankKey, int]:
    """Ranks that somebody will look at, by how soon: whom a hang waits for and who is called slow,
    then lost, stuck and late ones."""
    trouble: dict[RankKey, int] = {}
    for group, its in found.items():
        for soon, state in enumerate((LOST, STUCK, LATE), start=1):
            ranks = its.ranks[its.rank_states == state].tolist()
            trouble.update(((group, rank), soon) for rank in ranks)
        culprits = its.ranks[its.blame.culprits].tolist() if its.blame else ()
        trouble.update(((group, rank), 0) for rank in culprits)
    return trouble | dict.fromkeys(flagged, 0)


def _add_states(
    families: Families,
    world: World,
    its: HangStatus,
    constant_labels: str,
    shown: ShownLife,
    group: str,
) -> None:
    """One series for each subject: its state is a label."""
    timeouts_s = its.timeout_s.tolist()
    for rank, code, timeout_s in zip(
        its.ranks.tolist(), its.rank_states.tolist(), timeouts_s, strict=True
    ):
        life = world.ranks.get(rank)
        if life is None:
            continue
        text = f"{rank_labels(life.source)},{constant_labels}"
        if shown.shows(semconv.RANK_STATE, (group, rank)):
            families.add(semconv.RANK_STATE, f"{label('state', RANK_STATES[code])},{text}", 1)
        if shown.shows(semconv.RANK_TIMEOUT, (group, rank)):
            families.add(semconv.RANK_TIMEOUT, text, timeout_s)


def _add_rank(
    families: Families, life: RankLife, constant_labels: str, shown: ShownLife, key: RankKey
) -> None:
    text = f"{rank_labels(life.source)},{constant_labels}"
    for metric, at_s in (
        (semconv.LAST_HEARTBEAT, life.sent_at_s),
        (semconv.LAST_PROGRESS, life.progress_at_s),
    ):
        here_s = life.here(at_s)
        if here_s is not None and shown.shows(metric, key):
            families.add(metric, text, here_s)
    if life.step is not None and shown.shows(semconv.RANK_STEP, key):
        families.add(semconv.RANK_STEP, text, life.step)
    finished_at_s = life.here(life.finished_at_s)
    if finished_at_s is not None:
        outcome = label("outcome", life.outcome or "unknown")
        families.add(semconv.RANK_FINISHED, f"{outcome},{text}", finished_at_s)
    for reason, count in life.dropped.items():
        families.add(semconv.RECORDS_DROPPED, f"{label('reason', reason)},{text}", count)
    folded = sum(life.folded.values())  # which sections they are stays in the heartbeats
    if folded:
        families.add(semconv.RECORDS_FOLDED, text, folded)
    if shown.shows(semconv.RANK_INFO, key):
        description = _description(life.source, life.gpu_tier, life.gpu_reason)
        families.add(semconv.RANK_INFO, f"{description},{text}", 1)


@lru_cache(maxsize=MOST_LABELLED)
def _description(source: Source, gpu_tier: str, gpu_reason: str) -> str:
    """What else is known of a rank, under the names that OpenTelemetry's translator gives."""
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
    families: Families, run_id: str, group: str, world: World, constant_labels: str
) -> None:
    job = next((life.source.job for life in world.ranks.values()), "")
    text = f"{labels(run_id=run_id, job_name=job, group=group)},{constant_labels}"
    families.add(semconv.RUN_WORLD_SIZE, text, max(world.world_size, len(world.ranks)))
    families.add(semconv.RUN_STARTED, text, world.began_at_s)
    for section, ranks in _open_sections(world).items():
        families.add(semconv.RUN_OPEN_SECTIONS, f"{label('section', section)},{text}", ranks)
    finished_at_s = world.finished_at_s
    if finished_at_s is not None:
        families.add(semconv.RUN_FINISHED, text, finished_at_s)
    _add_extremes(families, world, text)


def _add_extremes(families: Families, world: World, text: str) -> None:
    """Of all ranks: of 10,000 each, Prometheus would take seconds to find them."""
    lives = [life for life in world.ranks.values() if life.finished_at_s is None]
    for metric, times in (
        (semconv.RUN_OLDEST_HEARTBEAT, (life.here(life.sent_at_s) for life in lives)),
        (semconv.RUN_OLDEST_PROGRESS, (life.here(life.progress_at_s) for life in lives)),
    ):
        known = [at_s for at_s in times if at_s is not None]
        if known:
            families.add(metric, text, min(known))
    steps = [life.step for life in world.ranks.values() if life.step is not None]
    if steps:
        families.add(semconv.RUN_STEP, text, max(steps))


def _open_sections(world: World) -> dict[str, int]:
    """How many ranks that have not ended are in each; the rarest together."""
    lives = (life for life in world.ranks.values() if life.finished_at_s is None)
    counted = Counter(life.open_section for life in lives if life.open_section)
    shown = dict(counted.most_common(_MOST_SECTIONS))
    others = counted.total() - sum(shown.values())
    return {**shown, semconv.OTHER_SECTION: others} if others else shown
