"""The detector's sections: by name or by the line that opens them, one in so many executions."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from otel_straggler.client.callables import EveryNth
from otel_straggler.client.compiled import Transparent, transparent
from otel_straggler.client.sections import Section, section
from otel_straggler.native import NATIVE
from otel_straggler.report.statistics import MAX_RUNS
from otel_straggler.semconv import SectionKind

_MAX_KEPT = 10_000
_KIND: SectionKind = "compute"
Opened = AbstractContextManager[Any]
MakeSection = Callable[[Any, bool], Opened]


@dataclass
class CustomSection:
    """A section of the detector, as it is now.

    Attributes:
        name: as it was given; of one without a name its file and line.
        location: file and line that opened it first.
        total_entry_cnt: executions, also those that were not timed.
        max_elapseds_len: how many of the newest are kept.
        cpu_elapsed_times: of this window, milliseconds, oldest first; a copy.
    """

    name: Any
    location: str
    total_entry_cnt: int = 0
    max_elapseds_len: int = MAX_RUNS
    cpu_elapsed_times: deque[float] = field(default_factory=deque)


class DetectionSections:
    """Sections by name, kept until ``clear()``.

    Attributes:
        labels: names that are no text, or empty, by the text that stands for them.
        profiles_kernels: whether the kernels of any count.
    """

    def __init__(self) -> None:
        self._by_profile: tuple[dict[Any, Opened], dict[Any, Opened]] = {}, {}
        self._known: dict[str, tuple[Any, str, Any]] = {}
        self._profiled: set[str] = set()
        self._unprofiled: set[str] = set()
        self._turns: dict[str, count[int]] = {}
        self.labels: dict[str, Any] = {}
        self.sample_every = 1

    @property
    def profiles_kernels(self) -> bool:
        return bool(self._profiled)

    @property
    def unprofiled(self) -> Set[str]:
        """Sections that were only ever opened without ``profile_cuda``."""
        return self._unprofiled - self._profiled

    def find(self, name: Any, profile_cuda: bool) -> Opened | None:
        try:
            return self._by_profile[bool(profile_cuda)].get(name)
        except TypeError:  # a name that cannot be hashed
            return None

    def opened(self, name: Any, profile_cuda: bool, location: str) -> Opened:
        """The section of a name; a new one the first time."""
        text = self._text_of(name)
        known = self._known.get(text)
        result: Opened = self._new(text) if known is None else known[2]
        if len(self._known) < _MAX_KEPT:  # names that vary do not fill the memory
            self._known.setdefault(text, (name, location, result))
            self._keep(name, profile_cuda, result)
        (self._profiled if profile_cuda else self._unprofiled).add(text)
        return result

    def decorator(self, name: str, profile_cuda: bool) -> Any:
        """Of a callable that may be wrapped before anything is kept."""
        (self._profiled if profile_cuda else self._unprofiled).add(name)
        known = self._known.get(name)
        return self._new(name) if known is None else known[2]

    def profile(self, *names: str) -> None:
        """Count the kernels of sections that somebody else opens, as the hooks of a trainer do."""
        self._profiled.update(names)

    def sample(self, every: int) -> None:
        """Time one in so many executions of each section from now on."""
        self.sample_every = every
        if NATIVE is not None:
            NATIVE.set_sampling(every)

    def clear(self, make: MakeSection) -> None:
        """Forget all; ``make`` is asked for the next ones."""
        for table in self._by_profile:
            table.clear()
        for names in (self._known, self._profiled, self._unprofiled, self._turns, self.labels):
            names.clear()
        if NATIVE is not None:
            unprofiled, profiled = self._by_profile
            NATIVE.set_detection_sections(unprofiled, profiled, make)

    def _keep(self, name: Any, profile_cuda: bool, made: Opened) -> None:
        try:
            self._by_profile[bool(profile_cuda)][name] = made
        except TypeError:
            return

    def _text_of(self, name: Any) -> str:
        if isinstance(name, str) and name:
            return name
        text = f"{name!r} ({type(name).__name__})"
        if len(self.labels) < _MAX_KEPT and getattr(name, "__hash__", None) is not None:
            self.labels.setdefault(text, name)
        return text

    def _new(self, text: str) -> Any:
        if NATIVE is None:
            return EveryNth(section(text, _KIND), self._is_turn)
        made = Section(text, _KIND)  # not the one of section(), which is never sampled
        made.sample()
        return made

    def _is_turn(self, name: str) -> bool:
        turn = self._turns.get(name)
        if turn is None:
            turn = self._turns.setdefault(name, count())
        return next(turn) % self.sample_every == 0

    def described(self) -> Iterator[tuple[str, CustomSection]]:
        """Text of each and what is known of it, without its times."""
        for text, (name, location, made) in list(self._known.items()):
            yield text, CustomSection(name, location, getattr(made, "entries", 0))


class CustomSections(Mapping[Any, CustomSection]):
    """The sections of the detector by name, as they are when they are looked up.

    Args:
        sections: of the detector.
        lengths_ns: gives a section's times in this window.
    """

    def __init__(self, sections: DetectionSections, lengths_ns: Callable[[str], Any]) -> None:
        self._sections = sections
        self._lengths_ns = lengths_ns

    def __getitem__(self, name: Any) -> CustomSection:
        for text, each in self._sections.described():
            if each.name == name:
                lengths_ms = (self._lengths_ns(text) / 1e6).tolist()
                each.cpu_elapsed_times = deque(lengths_ms, maxlen=MAX_RUNS)
                return each
        raise KeyError(name)

    def __iter__(self) -> Iterator[Any]:
        return iter([each.name for _, each in self._sections.described()])

    def __len__(self) -> int:
        return sum(1 for _ in self._sections.described())


SECTIONS = DetectionSections()


def caller_of(depth: int) -> str:
    """File and line of the frame so far above the one that asks."""
    caller = sys._getframe(depth + 1)  # noqa: SLF001
    return f"{caller.f_code.co_filename}:{caller.f_lineno}"


def traced_section(name: Any = None, profile_cuda: bool = True) -> Transparent:  # noqa: ARG001
    """A section, where Dynamo traces it."""
    return transparent()
