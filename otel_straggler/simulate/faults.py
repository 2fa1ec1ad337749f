"""Faults of a simulated run: kind, size, subject, first and last step."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, NoReturn

from otel_straggler.errors import ConfigError
from otel_straggler.inject.faults import read_size, read_who, who_text

GPU_KINDS: Final = ("compute", "ramp", "forward", "backward", "transient", "flap")
HOST_KINDS: Final = ("data", "data_stall", "late")
HANG_KINDS: Final = ("hang_never_joined", "hang_joined", "crash")
KINDS: Final[dict[str, str]] = {
    "compute": "all compute sections take x SIZE",
    "ramp": "as compute, growing from 1 to SIZE over 100 steps",
    "forward": "forward takes x SIZE",
    "backward": "backward takes x SIZE",
    "transient": "as compute, for 10 to 30 steps",
    "flap": "as compute, 30 steps on and 30 off",
    "data": "data loading takes SIZE seconds more",
    "data_stall": "data loading takes SIZE seconds more in one of 20 steps",
    "late": "SIZE seconds that no section measures, before the collective",
    "link": "the collective takes x SIZE for all who share it with these ranks",
    "uniform": "as compute, on all ranks",
    "hang_never_joined": "the ranks never come to the collective; nothing goes on",
    "hang_joined": "all are in the collective, which never ends",
    "crash": "the ranks are gone; nothing goes on",
}
"""The kinds of faults, and what SIZE means."""
_SECONDS: Final = frozenset(HOST_KINDS)
_SHAPE = re.compile(
    r"(?P<kind>[a-z_]+)(:(?P<size>[^:@]+))?(@(?P<who>[a-z]+[0-9,]*))?"
    r"[:@]step(?P<onset>\d{1,12})(-(?P<end>\d{1,12}))?"
)
_EXAMPLE = "Write KIND:SIZE@WHO:stepN or stepN-M, for example compute:1.10@rank37:step500."


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of ``ranks``, a ``host``, a ``rail`` or a ``stage``.

    Attributes:
        kind: one of ``KINDS``.
        size: factor or seconds, as ``KINDS`` says.
        ranks: numbers at the onset.
        host: index of a node; all its ranks.
        rail: local rank; the same one of all nodes.
        stage: pipeline stage; all its ranks.
        end_step: first step without it; None: it lasts.

    >>> fault = Fault.parse("data:0.1@host3:step200-400")
    >>> fault.kind, fault.size, fault.host, fault.onset_step, fault.end_step
    ('data', 0.1, 3, 200, 400)
    """

    kind: str
    size: float = 1.0
    ranks: tuple[int, ...] = ()
    host: int | None = None
    rail: int | None = None
    stage: int | None = None
    onset_step: int = 0
    end_step: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            _refuse(self.kind, "one of " + ", ".join(KINDS))
        if not math.isfinite(self.size):
            _refuse(self.size, "a finite size")
        minimum = 0.0 if self.kind in _SECONDS else 1.0
        if self.kind not in HANG_KINDS and not minimum < self.size <= 1e4:
            expected = "seconds above 0" if self.kind in _SECONDS else "a factor above 1"
            _refuse(f"{self.kind} of {self.size:g}", f"{expected}, at most 10000")
        if self.end_step is not None and self.end_step <= self.onset_step:
            _refuse(f"step{self.onset_step}-{self.end_step}", "an end after the onset")
        named = [bool(self.ranks), *(x is not None for x in (self.host, self.rail, self.stage))]
        if sum(named) != (self.kind != "uniform"):
            expected = "nobody: it is on all ranks" if self.kind == "uniform" else "one WHO"
            _refuse(self, expected)

    def __str__(self) -> str:
        size = "" if self.kind in HANG_KINDS else f":{self.size:g}"
        end = "" if self.end_step is None else f"-{self.end_step}"
        return f"{self.kind}{size}@{self.who}:step{self.onset_step}{end}"

    @property
    def who(self) -> str:
        return who_text(self.ranks, host=self.host, rail=self.rail, stage=self.stage)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parse ``compute:1.10@rank37:step500``, ``flap:1.25@host3:step200-400`` and the like.

        Raises:
            ConfigError: it is no fault.
        """
        match = _SHAPE.fullmatch(text.strip())
        if match is None:
            _refuse(text, "a fault")
        if match["kind"] not in KINDS:
            _refuse(match["kind"], "one of " + ", ".join(KINDS))
        kind, has_size = match["kind"], match["kind"] not in HANG_KINDS
        return cls(
            kind=kind,
            size=read_size(text, kind, match["size"], has_size=has_size, refuse=_refuse),
            onset_step=int(match["onset"]),
            end_step=int(match["end"]) if match["end"] else None,
            **read_who(text, match["who"] or "all", _refuse),
        )


def _refuse(value: object, expected: str) -> NoReturn:
    raise ConfigError.of("fault", str(value), expected, _EXAMPLE)
