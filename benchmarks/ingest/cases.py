"""What is measured: which receiver, how it is reached, by how many ranks, and how far it goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.ingest.doses import Dose, dose

OURS, UPB_PARSE, UPB_READ, ROTEL = "ours", "upb parse", "upb read", "rotel"
STAGES = ("receive", "score", "forward", "forward sampled")


@dataclass(frozen=True)
class Case:
    """One receiver under one load.

    Attributes:
        ranks, spans_per_request, is_zipped, protocol: of the load.
        stage: how far the receiver goes, one of :data:`STAGES`.
        subject: ours, or a peer.
    """

    ranks: int
    stage: str
    subject: str = OURS
    protocol: str = "http"
    spans_per_request: int = 512
    is_zipped: bool = False

    @property
    def name(self) -> str:
        """What its figures stand under."""
        how = [self.protocol, str(self.spans_per_request)]
        how += ["gzip"] * self.is_zipped
        what = self.stage if self.subject == OURS else f"{self.subject}, {self.stage}"
        return f"{' '.join(how)}, {self.ranks} ranks: {what}"

    def dose(self, part: float) -> Dose:
        """What is sent; the same for all cases that can have the same."""
        return dose(self.ranks, self.spans_per_request, part)


def cases_of(ranks: Sequence[int], *, has_rotel: bool) -> list[Case]:
    """Stages for each number of ranks; sampling, transports and peers for the middle one."""
    middle = sorted(ranks)[len(ranks) // 2]
    stages = [
        Case(number, stage)
        for number in ranks
        for stage in STAGES
        if stage != "forward sampled" or number == middle
    ]
    return [*stages, *_transports(Case(middle, "score")), *_peers(middle, has_rotel=has_rotel)]


def _transports(usual: Case) -> Iterator[Case]:
    yield replace(usual, is_zipped=True)
    yield replace(usual, spans_per_request=16)
    yield replace(usual, spans_per_request=16, is_zipped=True)
    yield replace(usual, spans_per_request=16, stage="receive")
    yield replace(usual, protocol="grpc", stage="receive")
    yield replace(usual, protocol="grpc")
    yield replace(usual, protocol="grpc", is_zipped=True)
    yield replace(usual, protocol="grpc", spans_per_request=16)


def _peers(ranks: int, *, has_rotel: bool) -> Iterator[Case]:
    for subject in (UPB_PARSE, UPB_READ):
        yield Case(ranks, "receive", subject)
    yield Case(ranks, "receive", UPB_PARSE, spans_per_request=16)
    yield Case(ranks, "receive", UPB_PARSE, protocol="grpc")
    if has_rotel:
        yield Case(ranks, "receive", ROTEL)
        yield Case(ranks, "receive", ROTEL, spans_per_request=16)
        yield Case(ranks, "receive", ROTEL, protocol="grpc")
        yield Case(ranks, "forward", ROTEL)
