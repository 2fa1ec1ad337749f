"""The methods that are compared. A new one is a class and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from benchmarks.detection.episodes import Episode
from benchmarks.detection.methods.bocd import Bocd
from benchmarks.detection.methods.nvrx import Nvrx
from benchmarks.detection.methods.ours import Ours
from benchmarks.detection.methods.robust import Robust, iqr_fence, mad_2, modified_z
from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable


class Method(Protocol):
    """What is compared: tables of steps go in, episodes come out.

    Attributes:
        name: as tables print it.
        has_host_scope: whether it can accuse a host.
        strengths: (R,) how suspicious every rank of the newest table is; empty before it can say.
    """

    name: str
    has_host_scope: bool

    @property
    def strengths(self) -> Floats: ...

    def take(self, table: StepTable) -> list[Episode]: ...


OURS = "otel-straggler"
METHODS: dict[str, Callable[[], Method]] = {
    OURS: Ours,
    "nvrx .75": Nvrx,
    "nvrx .75 role-min": lambda: Nvrx(within_roles=True),
    "mad k=2": lambda: Robust("mad k=2", mad_2),
    "z 3.5": lambda: Robust("z 3.5", modified_z),
    "iqr": lambda: Robust("iqr", iqr_fence),
    "bocd + verify 10 %": Bocd,
    "bocd + verify 5 %": lambda: Bocd(0.05),
}
