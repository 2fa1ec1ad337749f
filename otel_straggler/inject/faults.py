"""One fault of a real run: kind, size, ranks, when it begins and ends. The grammar of simulated
faults (``simulate/faults.py``), with seconds as well as steps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from otel_straggler.errors import ConfigError
from otel_straggler.strict_json import whole_number


@dataclass(frozen=True, slots=True)
class Kind:
    """What a fault is.

    Attributes:
        meaning: what it does to its ranks, and what SIZE is.
        min_size, max_size: of its SIZE; None: it has none.
        is_final: the rank cannot report afterwards, so that its span is sent before.
        needs_seconds: its end is not seen from inside of the rank, so a step cannot end it.
    """

    meaning: str
    min_size: float | None = None
    max_size: float = math.inf
    is_final: bool = False
    needs_seconds: bool = False


KINDS: Final[dict[str, Kind]] = {
    "rank_killed": Kind("SIGKILL", is_final=True),
    "rank_hung": Kind("SIGSTOP, SIGCONT at its end", is_final=True, needs_seconds=True),
    "rank_stuck": Kind("its main thread waits for a lock", needs_seconds=True),
    "gil_locked": Kind("a C call holds the GIL", needs_seconds=True),
    "exception": Kind("an exception in its main thread", is_final=True),
    "compute": Kind("compute sections take x SIZE", 1.0, 100.0),
    "forward": Kind("section forward takes x SIZE", 1.0, 100.0),
    "backward": Kind("section backward takes x SIZE", 1.0, 100.0),
    "data": Kind("data sections take SIZE seconds more", 0.0, 600.0),
    "late": Kind("SIZE seconds that no section measures, before waiting sections", 0.0, 600.0),
    "network_delay": Kind("tc netem delays all packets by SIZE seconds", 0.0, 10.0),
    "network_rate": Kind("tc tbf limits sending to SIZE Mbit/s", 0.0, 1e6),
    "memory_leak": Kind("its memory grows by SIZE MiB per second", 0.0, 1e6),
    "disk_full": Kind(
        "no file may grow beyond SIZE MiB; with a folder, a file of SIZE MiB fills it", 0.0, 1e6
    ),
    "gpu_busy": Kind("kernels of another stream keep its GPU busy"),
    "gpu_power_cap": Kind("its GPU may draw SIZE watts", 1.0, 10_000.0),
    "xid": Kind("a line about XID SIZE in the kernel log file that is given", 0.0, 1_000.0),
}
"""The kinds of faults."""
OF_SIMULATION: Final = {"crash": "rank_killed", "hang_never_joined": "rank_stuck"}
"""Names that simulated runs have for the same."""
Refuse: TypeAlias = Callable[[object, str], NoReturn]
MAX_S: Final = 3_600.0
"""Every fault is over after this."""
_NUMBER = r"\d{1,9}(?:\.\d{1,6})?"
_SHAPE = re.compile(
    r"(?P<kind>[a-z_]+)(:(?P<size>[^:@+]+))?(@(?P<who>[a-z]+[0-9,]*))?"
    rf"[:@](step(?P<step>\d{{1,12}})|(?P<at>{_NUMBER})s)"
    rf"(-(?P<end_step>\d{{1,12}})|-(?P<end>{_NUMBER})s|\+(?P<lasts>{_NUMBER})s)?"
    r"(:attempt(?P<attempt>\d{1,6}))?"
)
_TEMPLATE = re.compile(rf"(?P<kind>[a-z_]+)(:(?P<size>[^:@+]+))?(\+(?P<lasts>{_NUMBER})s)?")
_WHO = re.compile(r"(rank|host|rail|stage|all)s?(\d{1,9}(?:,\d{1,9})*)?")
_EXAMPLE = (
    "Write it like compute:1.5@rank3:step40-60, rank_killed@rank1:30s or "
    "rank_hung@host0:step40+20s."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a rank in its job.

    Attributes:
        host: number of its node; None: not known.
        local_rank: -1: not known.
        attempt: restarts of the launcher so far.
    """

    rank: int
    world_size: int = 1
    local_rank: int = -1
    host: int | None = None
    attempt: int = 0

    @classmethod
    def of(
        cls, rank: int, world_size: int, local_rank: int, attempt: int, env: Mapping[str, str]
    ) -> Place:
        """With the node's number as torchrun or Slurm give it, else by the ranks of a node."""
        host: int | None = None
        for name in ("GROUP_RANK", "SLURM_NODEID"):
            if host is None and (number := whole_number(env.get(name, ""))) is not None:
                host = number
        per_node = whole_number(env.get("LOCAL_WORLD_SIZE", ""))
        if host is None and per_node:
            host = rank // per_node
        return cls(
            rank=rank, world_size=max(world_size, 1), local_rank=local_rank, host=host,
            attempt=attempt,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        kind: one of ``KINDS``.
        size: as ``KINDS`` says; 1 where it has none.
        ranks, host, rail: whose it is: ranks, all of a node, or a local rank of all nodes; without
            any of them all ranks.
        onset_step: step in which it begins; None: at ``onset_s``.
        onset_s: seconds after the telemetry of the rank has begun.
        end_step: first step without it.
        lasts_s: seconds from its beginning to its end; at most ``MAX_S``.
        attempt: it belongs to this start of the job, so a restarted rank has it not again.

    >>> fault = Fault.parse("rank_hung@rank3:step40+20s")
    >>> fault.ranks, fault.onset_step, fault.lasts_s
    ((3,), 40, 20.0)
    """

    kind: str
    size: float = 1.0
    ranks: tuple[int, ...] = ()
    host: int | None = None
    rail: int | None = None
    onset_step: int | None = None
    onset_s: float = 0.0
    end_step: int | None = None
    lasts_s: float = MAX_S
    attempt: int = 0

    def __post_init__(self) -> None:
        kind = KINDS.get(self.kind)
        if kind is None:
            _refuse(self.kind, "one of " + ", ".join(KINDS))
        check_size(self.kind, self.size)
        if not 0.0 < self.lasts_s <= MAX_S:
            _refuse(self.lasts_s, f"an end after the onset, at most {MAX_S:g} s later")
        if self.end_step is not None:
            if self.onset_step is None or self.end_step <= self.onset_step:
                _refuse(f"step{self.onset_step}-{self.end_step}", "an end after the onset")
            if kind.needs_seconds:
                _refuse(
                    f"{self.kind} until step {self.end_step}",
                    "an end in seconds, such as +20s: the rank reaches no step meanwhile",
                )

    def __str__(self) -> str:
        size = "" if KINDS[self.kind].min_size is None else f":{self.size:g}"
        when = (
            f"step{self.onset_step}" if self.onset_step is not None else f"{_text(self.onset_s)}s"
        )
        if self.end_step is not None:
            when += f"-{self.end_step}"
        elif self.lasts_s != MAX_S:
            when += f"+{_text(self.lasts_s)}s"
        attempt = f":attempt{self.attempt}" if self.attempt else ""
        return f"{self.kind}{size}@{self.who}:{when}{attempt}"

    @property
    def who(self) -> str:
        return who_text(self.ranks, host=self.host, rail=self.rail)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parse ``compute:1.5@rank3:step40-60``, ``rank_killed@rank1:30s`` and the like.

        Raises:
            ConfigError: it is no fault.
        """
        match = _SHAPE.fullmatch(text.strip())
        if match is None:
            _refuse(text, "a fault")
        kind, size = read_kind(text, match["kind"], match["size"])
        who = read_who(text, match["who"] or "all", _refuse)
        if "stage" in who:
            _refuse(text, "rankN, rankN,M, hostN, railN or all after the @")
        onset_s = float(match["at"] or 0.0)
        return cls(
            kind=kind,
            size=size,
            onset_step=int(match["step"]) if match["step"] else None,
            onset_s=onset_s,
            end_step=int(match["end_step"]) if match["end_step"] else None,
            lasts_s=_lasts_s(text, match, onset_s),
            attempt=int(match["attempt"] or 0),
            **who,
        )

    def is_of(self, place: Place) -> bool:
        """Whether a rank has it."""
        if self.attempt != place.attempt:
            return False
        if self.ranks:
            return place.rank in self.ranks
        if self.host is not None:
            return place.host == self.host
        return self.rail is None or place.local_rank == self.rail


def read_template(text: str) -> tuple[str, float, float]:
    """Kind, size and seconds of ``compute:1.5+20s``: a fault without ranks and beginning.

    Raises:
        ConfigError: it is none.
    """
    match = _TEMPLATE.fullmatch(text.strip())
    if match is None:
        _refuse(text, "a kind of fault, such as rank_killed or compute:1.5+20s")
    kind, size = read_kind(text, match["kind"], match["size"])
    check_size(kind, size)
    return kind, size, float(match["lasts"] or MAX_S)


def read_kind(text: str, name: str, size: str | None) -> tuple[str, float]:
    """The kind, by its own name or that of simulated runs, and its size."""
    name = OF_SIMULATION.get(name, name)
    if name not in KINDS:
        _refuse(name, "one of " + ", ".join(KINDS))
    has_size = KINDS[name].min_size is not None
    return name, read_size(text, name, size, has_size=has_size, refuse=_refuse)


def read_size(text: str, kind: str, size: str | None, *, has_size: bool, refuse: Refuse) -> float:
    """The size of a fault; 1 where its kind has none.

    Args:
        text: the fault, for an error.
        has_size: whether its kind has one.
        refuse: raises for a value and what was expected.
    """
    if has_size != (size is not None):
        refuse(text, f"{kind} {'with' if has_size else 'without'} a size")
    try:
        return 1.0 if size is None else float(size)
    except ValueError:
        refuse(text, f"a number in place of {size!r}")


def check_size(kind: str, size: float) -> None:
    """Refuse a size that this kind cannot have."""
    minimum, maximum = KINDS[kind].min_size, KINDS[kind].max_size
    if minimum is not None and not minimum < size <= maximum:
        _refuse(f"{kind} of {size:g}", f"a size above {minimum:g}, at most {maximum:g}")


def read_who(text: str, who: str, refuse: Refuse) -> dict[str, Any]:
    """``rank3,5``, ``host1``, ``rail0``, ``stage2`` or ``all`` as arguments of a fault.

    Args:
        text: the fault, for an error.
        refuse: raises for a value and what was expected.
    """
    match = _WHO.fullmatch(who)
    if match is None or (match[1] == "all") != (match[2] is None):
        refuse(text, "rankN, rankN,M, hostN, railN, stageN or all after the @")
    if match[1] == "all":
        return {}
    numbers = tuple(int(number) for number in match[2].split(","))
    if match[1] == "rank":
        return {"ranks": numbers}
    if len(numbers) > 1:
        refuse(text, f"one {match[1]}")
    return {match[1]: numbers[0]}


def who_text(ranks: tuple[int, ...], **places: int | None) -> str:
    """What :func:`read_who` reads.

    >>> who_text((3, 5)), who_text((), host=None, rail=0), who_text(())
    ('rank3,5', 'rail0', 'all')
    """
    if ranks:
        return "rank" + ",".join(map(str, ranks))
    return next((f"{name}{n}" for name, n in places.items() if n is not None), "all")


def _lasts_s(text: str, match: re.Match[str], onset_s: float) -> float:
    if match["lasts"]:
        return float(match["lasts"])
    if match["end"] is None:
        return MAX_S
    if match["step"]:
        _refuse(text, "an end as a step (-60), or after seconds (+20s), of what begins at a step")
    return float(match["end"]) - onset_s


def _text(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _refuse(value: object, expected: str) -> NoReturn:
    raise ConfigError.of("fault", str(value), expected, _EXAMPLE)
