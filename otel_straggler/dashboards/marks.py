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
GOODPUTS: Final = ((None, "dark-red"), (0.7, "orange"), (0.9, "green"))
