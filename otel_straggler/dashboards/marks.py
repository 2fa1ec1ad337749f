"""Where a colour begins. Those that alerts look at are the alerts' defaults; a test says so."""

from __future__ import annotations

from typing import Final

SCORE_LOW: Final = 0.75
RUN_SLOW: Final = 1.15
SCORES: Final = ((None, "dark-red"), (SCORE_LOW, "orange"), (0.9, "green"))
RUN_SLOWDOWNS: Final = ((None, "green"), (1.05, "orange"), (RUN_SLOW, "dark-red"))
SLOWDOWNS: Final = ((None, "green"), (1.1, "orange"), (1 / SCORE_LOW, "dark-red"))
NONE_IS_GOOD: Final = ((None, "green"), (0.5, "dark-red"))
SOME_IS_ODD: Final = ((None, "green"), (0.5, "orange"))
SHARES: Final = ((None, "dark-red"), (0.5, "orange"), (0.95, "green"))
HEAT: Final = ((None, "green"), (85.0, "orange"), (92.0, "dark-red"))
STATES: Final = (
    ("ok", "green"),
    ("starting", "light-blue"),
    ("finished", "blue"),
    ("late", "orange"),
    ("missing", "purple"),
    ("stuck", "dark-red"),
    ("lost", "dark-purple"),
)
"""Of ranks: by the order of lines, those that are well would be red."""
RUN_STATES: Final = (
    ("training", "green"),
    ("starting", "light-blue"),
    ("stuck|partly_lost|lost|failed", "dark-red"),
    ("forgotten", "orange"),
)
HEARD: Final = ((None, "green"), (20.0, "dark-red"))
"""Seconds since the last heartbeat: after so many a rank is lost, unless that is set otherwise."""
RATE_IS_ODD: Final = ((None, "green"), (0.001, "orange"))
PART_IS_ODD: Final = ((None, "green"), (0.05, "orange"))
GOODPUTS: Final = ((None, "dark-red"), (0.7, "orange"), (0.9, "green"))
