"""Cache of the last view of a run: its version, and parts that are costly to build."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from otel_straggler.collector.views.answer import answer_of
from otel_straggler.collector.views.dwell import HeadlineDwell

if TYPE_CHECKING:
    from otel_straggler.alerts.rule import RunStatus
    from otel_straggler.collector.metrics.families import Families
    from otel_straggler.collector.views.run_view import NewestScores, RunView, WindowView
    from otel_straggler.collector.views.world_view import Headline
    from otel_straggler.model.scores import WindowScores


@dataclass(slots=True)
class RunShown:
    """Owned by one thread.

    Attributes:
        view, viewed_at_ns, cost_s: the last one, when it was built, and its processor time.
        has_logged_clash: that several processes claim a rank.
        summarized: progress at the last summary for the history.
        series_needed: at the last publication, if nothing had been folded.
        newest_scores: input of the alerts; None after scores have changed.
        watched: input of the alerts, of all groups.
        dwells: headlines of the groups.
    """

    view: RunView | None = None
    viewed_at_ns: int = 0
    cost_s: float = 0.0
    version: int = 0
    content: object = None
    has_logged_clash: bool = False
    summarized: object = None
    series_needed: int = 0
    windows: tuple[WindowView, ...] = ()
    newest_scores: dict[str, NewestScores] | None = None
    watched: tuple[RunStatus, ...] = ()
    dwells: dict[str, HeadlineDwell] = field(default_factory=dict)
    _series: dict[str, tuple[object, Families]] = field(default_factory=dict)

    def settled(self, view: RunView, now_s: float) -> RunView:
        """With the headlines that are shown, evaluated again where something has changed."""
        view = replace(view, settled=self._headlines())
        if view.content() == self.content and not any(d.is_pending for d in self.dwells.values()):
            return view
        asked = replace(view, settled={}, _worlds={})
        for group in asked.groups:
            dwell = self.dwells.setdefault(group, HeadlineDwell())
            dwell.settle(answer_of(asked.world(group)), now_s)
        return replace(view, settled=self._headlines(), _worlds={})

    def _headlines(self) -> dict[str, Headline]:
        return {group: each.shown for group, each in self.dwells.items() if each.shown is not None}

    def drop_series(self) -> None:
        self._series.clear()

    def scores_have_changed(self) -> None:
        self.newest_scores = None
        self._series.pop("scores", None)
        self._series.pop("verdicts", None)

    def window_views(
        self, windows: Iterable[WindowScores], make: Callable[[WindowScores], WindowView]
    ) -> tuple[WindowView, ...]:
        """Views of the newest windows, reused for known ones."""
        known = {id(shown.window): shown for shown in self.windows}
        made = tuple(known.get(id(window)) or make(window) for window in windows)
        if len(made) != len(self.windows) or any(
            new is not old for new, old in zip(made, self.windows, strict=True)
        ):
            self.windows = made
        return self.windows

    def series(self, part: str, made_for: object, make: Callable[[], Families]) -> Families:
        """Part of the series, rebuilt when ``made_for`` changes."""
        known = self._series.get(part)
        if known is None or known[0] != made_for:
            known = self._series[part] = (made_for, make())
        return known[1]
