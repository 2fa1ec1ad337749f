"""Plans of faults: named one by one, or drawn from a seed. Every rank reads the whole plan and
takes its own part, so that no rank has to ask another; the same text gives the same plan on every
node."""

from __future__ import annotations

import io
import math
import random
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from otel_straggler.errors import ConfigError, InputError
from otel_straggler.inject.faults import Fault, Place, read_template
from otel_straggler.regular_files import read_small_text
from otel_straggler.yaml_file import read_yaml

DAY_S: Final = 86_400.0
MAX_FAULTS: Final = 10_000
"""Of one rank, or of a file."""
DEFAULT_KINDS: Final = ("rank_killed", "rank_hung")
"""NVRx's two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomFaults:
    """Faults drawn from a seed.

    Attributes:
        seed: also of ranks and attempts: each draws numbers of its own.
        mtbf_s: mean seconds between two faults of one rank, which come as a Poisson process.
        interval_s: seconds between two faults of the job, each on a rank that is drawn. One of
            both is given, the other is 0.
        until_s: no fault begins later than that after the start.
        kinds: what may come, with equal chances: ``rank_killed``, ``compute:1.5+20s``, ...
    """

    seed: int = 0
    mtbf_s: float = 0.0
    interval_s: float = 0.0
    until_s: float = DAY_S
    kinds: tuple[str, ...] = DEFAULT_KINDS

    def __post_init__(self) -> None:
        if (self.mtbf_s > 0) == (self.interval_s > 0):
            expected = "seconds for one of mtbf and interval"
            _refuse(f"mtbf={self.mtbf_s:g} interval={self.interval_s:g}", expected)
        for name in ("mtbf_s", "interval_s", "until_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                _refuse(f"{name} {value}", "seconds of at least 0")
        if not self.kinds:
            _refuse("no kinds", "at least one kind of fault")
        if self.until_s / (self.mtbf_s or self.interval_s) > MAX_FAULTS / 2:
            _refuse(f"until={self.until_s:g}", f"at most {MAX_FAULTS // 2} faults of a rank")
        for kind in self.kinds:
            read_template(kind)

    def of_rank(self, rank: int, world_size: int, attempt: int) -> list[Fault]:
        """Its faults in one attempt, in order. Cost: O(faults); of ``interval``, those of all.

        >>> [str(f) for f in RandomFaults(seed=6, mtbf_s=100, until_s=150).of_rank(0, 8, 0)]
        ['rank_hung@rank0:114.8s']
        """
        if self.interval_s:
            return [f for f in self._in_turn(world_size, attempt) if f.ranks == (rank,)]
        return list(self._poisson(rank, attempt))

    def _poisson(self, rank: int, attempt: int) -> Iterator[Fault]:
        drawn = random.Random(f"{self.seed}|{attempt}|rank {rank}")
        at_s = 0.0
        while True:
            at_s -= math.log(1.0 - drawn.random()) * self.mtbf_s
            if at_s > self.until_s:
                return
            yield self._fault(drawn, rank, at_s, attempt)

    def _in_turn(self, world_size: int, attempt: int) -> Iterator[Fault]:
        for number in range(1, int(self.until_s / self.interval_s) + 1):
            drawn = random.Random(f"{self.seed}|{attempt}|fault {number}")
            rank = int(drawn.random() * world_size)
            yield self._fault(drawn, rank, number * self.interval_s, attempt)

    def _fault(self, drawn: random.Random, rank: int, at_s: float, attempt: int) -> Fault:
        kind, size, lasts_s = read_template(self.kinds[int(drawn.random() * len(self.kinds))])
        return Fault(
            kind=kind, size=size, ranks=(rank,), onset_s=round(at_s, 3), lasts_s=lasts_s,
            attempt=attempt,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionPlan:
    """All faults of a job.

    Attributes:
        faults: named ones.
        drawn: from a seed.
        folder: that ``disk_full`` fills; empty: it limits the size of files instead.
        kernel_log: file that ``xid`` writes to.
        interface: that ``network_delay`` and ``network_rate`` act on; empty: all of the network
            namespace, which must not be the one of the host.
    """

    faults: tuple[Fault, ...] = ()
    drawn: RandomFaults | None = None
    folder: str = ""
    kernel_log: str = ""
    interface: str = ""

    @classmethod
    def parse(cls, text: str) -> InjectionPlan:
        """Read the text of the variable: faults and ``name=value``, separated by blanks.

        >>> str(InjectionPlan.parse("mtbf=60 seed=3 crash@rank1:step40"))
        'rank_killed@rank1:step40 seed=3 mtbf=60 until=86400 kinds=rank_killed,rank_hung'

        Raises:
            ConfigError: it is no plan, or names a file that is none.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            _refuse(text, f"words ({error})")
        options = dict(word.split("=", 1) for word in words if "=" in word)
        faults = tuple(Fault.parse(word) for word in words if "=" not in word)
        if "plan" in options:
            if len(words) > 1:
                _refuse(text, "nothing next to plan=FILE")
            return read_plan(Path(options["plan"]))
        return cls.of(faults, options)

    @classmethod
    def of(cls, faults: tuple[Fault, ...], options: Mapping[str, str]) -> InjectionPlan:
        """From faults, and options by the names of the variable."""
        if unknown := options.keys() - {*_OPTIONS, *_PLACES}:
            _refuse(min(unknown), "one of " + ", ".join([*_OPTIONS, *_PLACES]))
        given = {_OPTIONS[n][0]: _value(n, options[n]) for n in _OPTIONS if n in options}
        if given and not given.keys() & {"mtbf_s", "interval_s"}:
            _refuse(" ".join(given), "mtbf=SECONDS or interval=SECONDS with it")
        drawn = RandomFaults(**given) if given else None
        places = {name: options[name] for name in _PLACES if name in options}
        return cls(faults=faults, drawn=drawn, **places)

    def __str__(self) -> str:
        words = [str(fault) for fault in self.faults]
        if self.drawn is not None:
            for name, (field, _) in _OPTIONS.items():
                value = getattr(self.drawn, field)
                if name in ("mtbf", "interval") and not value:
                    continue
                shown = ",".join(value) if isinstance(value, tuple) else f"{value:g}"
                words.append(f"{name}={value if name == 'seed' else shown}")
        words += [f"{name}={getattr(self, name)}" for name in _PLACES if getattr(self, name)]
        return shlex.join(words)

    def of_rank(self, place: Place) -> list[Fault]:
        """The faults of one rank, those at steps first, then by their time."""
        own = [fault for fault in self.faults if fault.is_of(place)]
        if self.drawn is not None:
            own += self.drawn.of_rank(place.rank, place.world_size, place.attempt)
        return sorted(own, key=lambda f: (f.onset_s, f.onset_step or 0))

    def of_job(self, world_size: int, attempt: int = 0) -> list[Fault]:
        """Those of all ranks, each once, as far as ranks are known."""
        every = [fault for fault in self.faults if fault.attempt == attempt]
        if self.drawn is not None:
            for rank in range(world_size):
                every += self.drawn.of_rank(rank, world_size, attempt)
        return sorted(every, key=lambda f: (f.onset_s, f.onset_step or 0, f.ranks))


_OPTIONS: Final[dict[str, tuple[str, type]]] = {
    "seed": ("seed", int),
    "mtbf": ("mtbf_s", float),
    "interval": ("interval_s", float),
    "until": ("until_s", float),
    "kinds": ("kinds", tuple),
}
_PLACES: Final = ("folder", "kernel_log", "interface")


def _value(name: str, text: str) -> Any:
    kind = _OPTIONS[name][1]
    try:
        return tuple(text.split(",")) if kind is tuple else kind(text)
    except ValueError:
        _refuse(f"{name}={text}", "a whole number" if kind is int else "a number")


# --- files --------------------------------------------------------------------------------------

_COLUMNS: Final = ("fault", "kind", "size", "who", "step", "at_s", "end_step", "lasts_s", "attempt")


def read_plan(path: Path) -> InjectionPlan:
    """Read a plan: rows of CSV, or YAML with ``faults`` and the options of the variable.

    A row is a fault as text (``fault``), or its parts: ``kind``, ``size``, ``who`` (``rank3``),
    ``step`` or ``at_s``, ``end_step`` or ``lasts_s``, ``attempt``.

    Raises:
        ConfigError: it cannot be read, or holds something else; says which row.
        UnavailableError: it is YAML, and PyYAML is not installed.
    """
    if path.suffix == ".csv":
        return InjectionPlan(faults=_faults(path, _rows_of_csv(path)))
    document = _yaml(path)
    rows = document.pop("faults", [])
    if not isinstance(rows, list) or len(rows) > MAX_FAULTS:
        _refuse_row(path, "faults", f"a list of at most {MAX_FAULTS} rows")
    options = {
        name: ",".join(value) if isinstance(value, list) else str(value)
        for name, value in document.items()
    }
    return InjectionPlan.of(_faults(path, rows), options)


def _rows_of_csv(path: Path) -> list[dict[str, str]]:
    import csv

    try:
        text = read_small_text(path, follow=True)
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (OSError, InputError, csv.Error) as error:
        raise ConfigError.of("plan", str(path), f"a readable file ({error})", _REMEDY) from error
    return [{name: value for name, value in row.items() if value} for row in rows]


def _yaml(path: Path) -> dict[str, Any]:
    document: Any = read_yaml(path, see="docs/operate/inject.md", what="plan")
    if isinstance(document, list):
        document = {"faults": document}
    if not isinstance(document, dict):
        _refuse_row(path, type(document).__name__, "a list of faults, or a mapping with `faults`")
    return document


def _faults(path: Path, rows: list[Any]) -> tuple[Fault, ...]:
    return tuple(_fault(path, number, row) for number, row in enumerate(rows, 1))


def _fault(path: Path, number: int, row: Any) -> Fault:
    try:
        if isinstance(row, str):
            return Fault.parse(row)
        if not isinstance(row, dict):
            _refuse(row, "a fault as text, or a mapping of its parts")
        if unknown := set(map(str, row)) - set(_COLUMNS):
            _refuse(min(unknown), "one of " + ", ".join(_COLUMNS))
        return Fault.parse(str(row["fault"]) if "fault" in row else _joined(row))
    except ConfigError as error:
        raise ConfigError(f"{path}, row {number}: {error}") from error


def _joined(row: Mapping[str, Any]) -> str:
    """The parts of a row as text."""
    if "kind" not in row or ("step" in row) == ("at_s" in row):
        _refuse(dict(row), "kind, and one of step and at_s")
    size = f":{row['size']}" if "size" in row else ""
    when = f"step{row['step']}" if "step" in row else f"{row['at_s']}s"
    if "end_step" in row:
        when += f"-{row['end_step']}"
    elif "lasts_s" in row:
        when += f"+{row['lasts_s']}s"
    attempt = f":attempt{row['attempt']}" if "attempt" in row else ""
    return f"{row['kind']}{size}@{row.get('who', 'all')}:{when}{attempt}"


_REMEDY: Final = "See docs/operate/inject.md."


def _refuse_row(path: Path, value: object, expected: str) -> NoReturn:
    raise ConfigError.of(f"plan {path}", value, expected, _REMEDY)


def _refuse(value: object, expected: str) -> NoReturn:
    raise ConfigError.of("plan of faults", str(value), expected, _REMEDY)
