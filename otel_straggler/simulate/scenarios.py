"""Named runs with known answers: what each rank measured, and which one is slow.

Every rank waits in ``gradient_sync`` for the slowest, so that victims of a slow rank wait and the
slow rank does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from otel_straggler.errors import ConfigError
from otel_straggler.model.observation import NO_KERNEL, Floats, Ints, ObservationBatch, Section
from otel_straggler.model.rank import Source

WAIT = "gradient_sync"
SECTIONS = (
    Section("data_loading", "data"),
    Section("forward", "compute"),
    Section("backward", "compute"),
    Section(WAIT, "wait"),
    Section("optimizer", "compute"),
)
_WAIT_AT = 3
TYPICAL_S = np.array([0.012, 0.030, 0.055, 0.004, 0.009])
"""Seconds of a section on a healthy rank; of the waiting section once the last rank has arrived."""
MAX_ROWS = 20_000_000
NEW_YEAR_2026_NS = 1_767_225_600_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A named run.

    Attributes:
        slow_rank: the rank that is slow or missing; for ``slow_host``, its whole node.
        slowdown: own time / usual time in ``section``.
        onset_step: first slow or missing step.
        noise: standard deviation of every time, as a fraction of it.
    """

    ranks: int = 8
    steps: int = 100
    ranks_per_node: int = 4
    slow_rank: int = 5
    section: str = "forward"
    slowdown: float = 1.5
    onset_step: int = 0
    noise: float = 0.02
    seed: int = 0
    run_id: str = "simulated"
    start_ns: int = NEW_YEAR_2026_NS

    def __post_init__(self) -> None:
        for name, minimum in _MIN.items():
            _check(name, getattr(self, name) >= minimum, self, f"at least {minimum}")
        maximum = MAX_ROWS // (len(SECTIONS) * self.ranks)
        _check("steps", self.steps <= maximum, self, f"at most {maximum} for {self.ranks} ranks")
        _check("slow_rank", 0 <= self.slow_rank < self.ranks, self, f"0 to {self.ranks - 1}")
        _check("slowdown", 1.0 <= self.slowdown < 1e3, self, "at least 1 and below 1000")
        _check("noise", 0.0 <= self.noise <= 0.5, self, "0 to 0.5")
        _check("section", self.section in _LOCAL, self, "one of " + ", ".join(_LOCAL))


_MIN = {"ranks": 1, "steps": 1, "ranks_per_node": 1, "onset_step": 0, "seed": 0}
_LOCAL = tuple(section.name for section in SECTIONS if section.name != WAIT)


def _check(name: str, is_right: bool, plan: Plan, expected: str) -> None:
    if not is_right:
        remedy = f"Change --{name.replace('_', '-')}."
        raise ConfigError.of(f"simulated run, {name}", getattr(plan, name), expected, remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Slow (rank, section) pairs, and ranks that send nothing."""

    slow: frozenset[tuple[int, str]] = frozenset()
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One simulated run: rows in order of their starts, and the truth."""

    name: str
    plan: Plan
    batch: ObservationBatch
    truth: Truth


def simulate(name: str, plan: Plan | None = None) -> Scenario:
    """Build a scenario.

    >>> scenario = simulate("one_slow_rank", Plan(ranks=4, steps=2, slow_rank=3))
    >>> len(scenario.batch), sorted(scenario.truth.slow)
    (40, [(3, 'forward')])

    Raises:
        ConfigError: there is no such scenario.
    """
    if name not in SCENARIOS:
        known = ", ".join(SCENARIOS)
        raise ConfigError.of("scenario", name, known, "Choose one of them.")
    plan = plan or Plan()
    truth = SCENARIOS[name](plan)
    return Scenario(name=name, plan=plan, batch=_observe(plan, truth), truth=truth)


def _slow_host(plan: Plan) -> Truth:
    node = plan.slow_rank // plan.ranks_per_node
    ranks = (rank for rank in range(plan.ranks) if rank // plan.ranks_per_node == node)
    return Truth(slow=frozenset((rank, plan.section) for rank in ranks))


SCENARIOS: dict[str, Callable[[Plan], Truth]] = {
    "healthy": lambda _: Truth(),
    "one_slow_rank": lambda plan: Truth(slow=frozenset({(plan.slow_rank, plan.section)})),
    "slow_host": _slow_host,
    "missing_rank": lambda plan: Truth(missing=(plan.slow_rank,)),
}


def _observe(plan: Plan, truth: Truth) -> ObservationBatch:
    duration_s = _durations(plan, truth)
    duration_ns = np.maximum(1, np.rint(duration_s * 1e9).astype(np.int64))
    flat_ns = duration_ns.transpose(1, 0, 2).reshape(plan.ranks, -1)
    end_ns = plan.start_ns + np.cumsum(flat_ns, axis=1)
    start_ns = end_ns - flat_ns
    rows = _rows(plan, start_ns, flat_ns)
    is_gone = np.isin(rows.source, truth.missing) & (rows.step >= plan.onset_step)
    return rows.take(~is_gone)


def _durations(plan: Plan, truth: Truth) -> Floats:
    """(steps, ranks, sections) seconds."""
    rng = np.random.default_rng(plan.seed)
    shape = (plan.steps, plan.ranks, len(SECTIONS))
    noise: Floats = np.exp(rng.normal(0.0, plan.noise, shape)) if plan.noise else np.ones(shape)
    duration_s: Floats = TYPICAL_S * noise
    names = [section.name for section in SECTIONS]
    for rank, section in truth.slow:
        duration_s[plan.onset_step :, rank, names.index(section)] *= plan.slowdown
    duration_s[:, :, _WAIT_AT] += _waits(duration_s)
    return duration_s


def _waits(duration_s: Floats) -> Floats:
    """(steps, ranks) seconds until the last rank arrives; all leave the waiting together."""
    before = duration_s[:, :, :_WAIT_AT].sum(axis=2)
    after = duration_s[:, :, _WAIT_AT + 1 :].sum(axis=2)
    arrival = before + np.vstack([np.zeros((1, before.shape[1])), after[:-1]])
    return np.asarray(arrival.max(axis=1, keepdims=True) - arrival)


def _rows(plan: Plan, start_ns: Ints, duration_ns: Ints) -> ObservationBatch:
    """(ranks, steps * sections) times as rows, in order of their starts."""
    count = len(SECTIONS)
    index = np.tile(np.arange(plan.steps * count), plan.ranks)
    source = np.repeat(np.arange(plan.ranks, dtype=np.int32), plan.steps * count)
    rows = ObservationBatch(
        sources=tuple(_source(plan, rank) for rank in range(plan.ranks)),
        sections=SECTIONS,
        source=source,
        section=(index % count).astype(np.int32),
        kernel=np.full(len(index), NO_KERNEL, np.int32),
        step=index // count,
        start_ns=start_ns.ravel(),
        duration_s=duration_ns.ravel() / 1e9,
        seq=index // count,
    )
    return rows.take(np.argsort(rows.start_ns, kind="stable"))


def _source(plan: Plan, rank: int) -> Source:
    session = f"{plan.seed}|{plan.run_id}|{plan.start_ns}|{rank}".encode()
    return Source(
        run_id=plan.run_id,
        rank=rank,
        job="simulation",
        node=f"node-{rank // plan.ranks_per_node}",
        session_id=blake2b(session, digest_size=8).hexdigest(),
        local_rank=rank % plan.ranks_per_node,
        world_size=plan.ranks,
        parallel=(("data", rank),),
    )
