"""The runs: sizes, noise, faults and things that must not be taken for faults.

Faults are placed by the seed: who has them, and when they begin. Seeds A are for tuning, seeds B
for what is reported.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import numpy as np

from otel_straggler.simulate.faults import Fault
from otel_straggler.simulate.plan import Layout, RunPlan, Timing

Family = Literal["healthy", "negative", "structure", "fault"]
Band = Literal["", "masked 3 %", "masked 5-8 %", "ten", "quiet", "loud"]
Destination = Callable[[np.random.Generator, Layout], tuple[Fault, ...]]
GRADUAL: Final = ("ramp", "data_stall")
"""Kinds that have their dose later than their onset, or in few steps: no clear delay."""
BANDS: Final[tuple[Band, ...]] = ("loud", "quiet", "ten", "masked 5-8 %", "masked 3 %")
SEEDS: Final = {"A": 0, "B": 8000}
LAYOUTS: Final = {
    8: "dp8",
    64: "tp2,pp2,dp16",
    256: "tp4,pp2,dp32",
    1024: "tp8,pp4,dp32",
    4096: "tp8,pp4,dp128",
    16_384: "tp8,pp8,dp256",
}
N_FAULTS: Final = {8: 1, 64: 1, 256: 2, 1024: 3, 4096: 6, 16_384: 12}
STEPS, STEP_S = 400, 2.0
ONSETS: Final = (120, 180)
REPORTED: Final = "-reported"
"""At the end of a timing: ranks report what they wait in collectives."""
ORDINARY: Final[dict[str, Any]] = {
    "checkpoint_every": 100,
    "eval_every": 150,
    "gc_every_steps": 40,
    "diurnal": 0.015,
    "missing_reports": 0.01,
    "clock_offset_s": 0.01,
    "warm_up_steps": 20,
    "stage_factor": 1.2,
}
"""What a production job has all at once."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of run; a seed makes it one run.

    Attributes:
        kind: what happens, as names print it.
        family: what it is there for.
        ranks, noise, timing: as in ``RunPlan``.
        band: dose of its faults.
        n_seeds: runs of it in the full set.
        reports: ranks report what they wait in collectives.
        fields: of ``RunPlan`` besides those.
    """

    kind: str
    family: Family
    ranks: int
    noise: str = "ST"
    timing: Timing = "local"
    band: Band = ""
    index: Destination | None = None
    n_seeds: int = 5
    layout: str = ""
    reports: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Family, timing, noise, ranks, kind: what ``--cases`` selects by."""
        return f"{self.family}/{self.measured}/{self.noise}/{self.ranks}/{self.kind}"

    @property
    def measured(self) -> str:
        """What the times hold, and whether waiting in them is reported."""
        return f"{self.timing}{REPORTED if self.reports else ''}"

    def plan(self, seed: int) -> RunPlan:
        """The run with this seed. No two cases share their random numbers."""
        own = zlib.crc32(self.name.encode()) % 2**16
        layout = Layout.parse(self.layout or LAYOUTS[self.ranks])
        rng = np.random.default_rng((seed, own))
        return RunPlan(
            layout=layout,
            steps=STEPS,
            step_s=STEP_S,
            seed=seed * 2**16 + own,
            noise=self.noise,
            timing=self.timing,
            faults=self.index(rng, layout) if self.index else (),
            report_collectives=self.reports,
            **self.fields,
        )


def full_set() -> list[Case]:
    """All cases, smaller runs first."""
    cases = [*_grid(), *_kinds(), *_healthy(), *_negatives(), *_structures(), *_waiting()]
    cases += [replace(case, reports=True) for case in cases if case.timing != "local"]
    return sorted(cases, key=lambda case: case.ranks)


def quick_set() -> list[Case]:
    """A few of them, for a smoke test of less than a minute."""
    return [case for case in full_set() if any(fnmatchcase(case.name, p) for p in QUICK)]


QUICK: Final = (
    "fault/local/ST/64/compute-1.[15]*",
    "fault/local/ST/256/host-1.25",
    "fault/synchronised/ST/64/forward-1.10",
    "fault/synchronised/ST/64/data-0.2s",
    "fault/asynchronous/ST/64/compute-1.50",
    "fault/synchronised-reported/ST/64/backward-1.10",
    "fault/asynchronous-reported/ST/64/compute-1.50",
    "healthy/synchronised-reported/*",
    "healthy/local/ST/64/*",
    "negative/local/ST/256/ordinary",
    "structure/local/ST/256/stage-1.50",
)


def band_of(factor: float) -> Band:
    """Dose band of a slowdown.

    >>> band_of(1.05), band_of(1.10), band_of(1.25)
    ('masked 5-8 %', 'ten', 'quiet')
    """
    minimum: list[tuple[float, Band]] = [
        (1.45, "loud"),
        (1.145, "quiet"),
        (1.095, "ten"),
        (1.045, "masked 5-8 %"),
    ]
    return next((band for floor, band in minimum if factor >= floor), "masked 3 %")


def on_ranks(kind: str, size: float, n: int, *, onset: int | None = None) -> Destination:
    """The same fault on ``n`` ranks, each with an onset of its own."""

    def index(rng: np.random.Generator, layout: Layout) -> tuple[Fault, ...]:
        ranks = rng.choice(layout.ranks, n, replace=False)
        return tuple(
            Fault(
                kind=kind,
                size=size,
                ranks=(int(rank),),
                onset_step=int(rng.integers(*ONSETS)) if onset is None else onset,
            )
            for rank in ranks
        )

    return index


def on_group(kind: str, size: float, who: Literal["host", "rail", "all"]) -> Destination:
    """A fault on a host, on a rail, or on all ranks."""

    def index(rng: np.random.Generator, layout: Layout) -> tuple[Fault, ...]:
        maximum = max(1, layout.ranks // 8) if who == "host" else 8
        named = {} if who == "all" else {who: int(rng.integers(maximum))}
        return (Fault(kind=kind, size=size, onset_step=int(rng.integers(*ONSETS)), **named),)

    return index


def _grid() -> Iterator[Case]:
    """Doses of slow GPUs, at every noise and size."""
    doses = (1.03, 1.05, 1.08, 1.10, 1.15, 1.25, 1.50, 2.00)
    for ranks in (64, 256, 1024):
        for noise in ("AR", "ST", "SE"):
            for dose in doses:
                yield _compute(ranks, noise, dose, n_seeds=5)
    for dose in (1.10, 1.25, 1.50):
        yield _compute(8, "ST", dose, n_seeds=5)
    for dose in (1.05, 1.10, 1.25):
        yield _compute(4096, "ST", dose, n_seeds=2)
    for dose in (1.05, 1.10):
        yield _compute(16_384, "ST", dose, n_seeds=1)


def _compute(ranks: int, noise: str, dose: float, n_seeds: int, **fields: Any) -> Case:
    return Case(
        kind=f"compute-{dose:.2f}" + ("-ordinary" if fields else ""),
        family="fault",
        ranks=ranks,
        noise=noise,
        band=band_of(dose),
        index=on_ranks("compute", dose, N_FAULTS[ranks]),
        n_seeds=n_seeds,
        fields=fields,
    )


def _kinds() -> Iterator[Case]:
    """Other faults than slow GPUs, of 256 ranks with ordinary noise."""

    def case(kind: str, dose: float, index: Destination) -> Case:
        return Case(kind=kind, family="fault", ranks=256, band=band_of(dose), index=index)

    for kind, size in (("forward", 1.25), ("backward", 1.10), ("backward", 1.25), ("ramp", 1.15)):
        yield case(f"{kind}-{size:.2f}", size, on_ranks(kind, size, 2))
    for kind, seconds in (("data", 0.1), ("data", 0.2), ("data", 0.5), ("late", 0.2)):
        yield case(f"{kind}-{seconds}s", 1 + seconds / STEP_S, on_ranks(kind, seconds, 2))
    yield case("data_stall-2s", 1 + 2 / 20 / STEP_S, on_ranks("data_stall", 2.0, 2))
    for size in (1.25, 1.50):
        yield case(f"transient-{size:.2f}", size, on_ranks("transient", size, 2))
        yield case(f"flap-{size:.2f}", size, on_ranks("flap", size, 2))
    for size in (1.05, 1.10, 1.25):
        yield case(f"born-{size:.2f}", size, on_ranks("compute", size, 2, onset=0))
    for size in (1.08, 1.25):
        yield case(f"host-{size:.2f}", size, on_group("compute", size, "host"))
    yield case("host-data-0.2s", 1 + 0.2 / STEP_S, on_group("data", 0.2, "host"))
    for kind, layout in (("rail-1.10", "tp2,pp2,dp64"), ("rail-1.10-half-of-role", "")):
        yield replace(case(kind, 1.10, on_group("compute", 1.10, "rail")), layout=layout)
    for ranks in (256, 1024):
        for dose in (1.10, 1.25):
            yield _compute(ranks, "ST", dose, 5, **ORDINARY)


def _healthy() -> Iterator[Case]:
    for noise in ("AR", "ST", "SE"):
        for ranks in (64, 256, 1024):
            yield Case(kind="plain", family="healthy", ranks=ranks, noise=noise)
        yield Case(kind="plain", family="healthy", ranks=4096, noise=noise, n_seeds=1)
    yield Case(kind="plain", family="healthy", ranks=16_384, n_seeds=1)
    for timing in ("synchronised", "asynchronous"):
        yield Case(kind="plain", family="healthy", ranks=256, timing=timing)


def _negatives() -> Iterator[Case]:
    """Cases that look like faults but are not."""
    fields: dict[str, dict[str, Any]] = {
        "gc": {"gc_every_steps": 40, "gc_s": 0.5},
        "checkpoint": {"checkpoint_every": 100},
        "eval": {"eval_every": 100},
        "warm_up": {"warm_up_steps": 20},
        "diurnal": {"diurnal": 0.02},
        "missing": {"missing_reports": 0.01},
        "clocks": {"clock_offset_s": 0.01},
        "restart": {"restart_at_step": 200, "checkpoint_every": 90, "warm_up_steps": 20},
        "renumbered": {"restart_at_step": 200, "checkpoint_every": 90, "renumbers": True},
        "spikes": {"spikes": 0.01},
        "ordinary": ORDINARY,
    }
    for kind, plan in fields.items():
        yield Case(kind=kind, family="negative", ranks=256, fields=plan)
    for noise in ("AR", "SE"):
        yield Case(kind="ordinary", family="negative", ranks=256, noise=noise, fields=ORDINARY)
    for timing in ("synchronised", "asynchronous"):
        yield Case(kind="ordinary", family="negative", ranks=256, timing=timing, fields=ORDINARY)


def _structures() -> Iterator[Case]:
    """Causes that belong to no rank: a rank that is accused here is a false alarm."""

    def case(kind: str, index: Destination | None = None, layout: str = "", **fields: Any) -> Case:
        return Case(
            kind=kind, family="structure", ranks=256, index=index, layout=layout, fields=fields
        )

    yield case("stage-1.20", stage_factor=1.2)
    yield case("stage-1.50", stage_factor=1.5)
    yield case("sequence-0.20", sequence_cv=0.2)
    yield case("sequence-0.40", sequence_cv=0.4)
    yield case("expert-0.20", layout="ep8,pp2,dp128", expert_cv=0.2)
    yield case("expert-0.40", layout="ep8,pp2,dp128", expert_cv=0.4)
    yield case("uniform-1.15", on_group("uniform", 1.15, "all"))
    yield case("link-3", on_ranks("link", 3.0, 2))


def _waiting() -> Iterator[Case]:
    """Where sections hold waiting, or host times that say little. Each has a twin that reports
    waiting in collectives.

    The smaller layout has no tensor groups: there the slow rank is distinguishable from those that
    wait for it within forward. In the larger one it cannot, unless it is the host that is slow.
    """
    faults: tuple[tuple[str, float], ...] = (
        ("forward", 1.10), ("backward", 1.10), ("compute", 1.25), ("data", 0.2), ("late", 0.2),
    )  # fmt: skip
    for ranks in (64, 256):
        for noise in ("AR", "ST", "SE"):
            for kind, size in faults:
                yield _one_rank("synchronised", ranks, noise, kind, size)
        for kind, size in (*faults[2:], ("compute", 1.5), ("data", 0.5)):
            yield _one_rank("asynchronous", ranks, "ST", kind, size)


def _one_rank(timing: Timing, ranks: int, noise: str, kind: str, size: float) -> Case:
    is_seconds = kind in ("data", "late")
    return Case(
        kind=f"{kind}-{size:g}s" if is_seconds else f"{kind}-{size:.2f}",
        family="fault",
        ranks=ranks,
        noise=noise,
        timing=timing,
        band=band_of(1 + size / STEP_S if is_seconds else size),
        index=on_ranks(kind, size, 1),
        layout="pp2,dp32" if ranks == 64 else "",
    )
