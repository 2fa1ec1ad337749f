"""What was last shown of a run, kept on the run: its version, and what costs much to make again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_straggler.collector.metrics.families import Families
    from otel_straggler.collector.views.run_view import NewestScores, WindowView
    from otel_straggler.model.scores import WindowScores


@dataclass(slots=True)
class RunShown:
    """One thread owns it.

    Attributes:
        version: of the newest view; see :class:`RunView`.
        content: what it showed.
        summarized: the progress that the history was given last.
        windows: those of the newest view, with what was made of them.
        newest_scores: what alerts look at; None after scores have changed.
    """

    version: int = 0
    content: object = None
    summarized: object = None
    windows: tuple[WindowView, ...] = ()
    newest_scores: dict[str, NewestScores] | None = None
    _series: dict[str, tuple[object, Families]] = field(default_factory=dict)

    def scores_have_changed(self) -> None:
        self.newest_scores = None
        self._series.pop("scores", None)
        self._series.pop("verdicts", None)

    def window_views(
        self, windows: Iterable[WindowScores], make: Callable[[WindowScores], WindowView]
    ) -> tuple[WindowView, ...]:
        """Views of the newest windows; the same ones for those that were among them before."""
        known = {id(shown.window): shown for shown in self.windows}
        made = tuple(known.get(id(window)) or make(window) for window in windows)
        if len(made) != len(self.windows) or any(
            new is not old for new, old in zip(made, self.windows, strict=True)
        ):
            self.windows = made
        return self.windows

    def series(self, part: str, made_for: object, make: Callable[[], Families]) -> Families:
        """Some of its series; made when what they are made for is another than before."""
        known = self._series.get(part)
        if known is None or known[0] != made_for:
            known = self._series[part] = (made_for, make())
        return known[1]
