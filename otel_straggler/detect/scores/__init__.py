"""Scores: the median of a window against the fastest peer's and against the rank's own best.

A low score is never evidence for a verdict: verdicts start from the seconds again. Reading order:

1. ``scorer`` ``world``: rows find their run and group; one object owns all state of such a world.
2. ``stream`` ``windows`` ``sources``: rows of one incarnation, in windows of 20 steps for scores
and blocks of 5 for verdicts; both close when all ranks have passed them.
3. ``window_scores`` ``formulas`` ``medians`` ``references`` ``lineages``: one closed window.
4. ``step_tables``: seconds by step, rank, and section for verdicts, without duplicates.
5. ``kernel_store`` ``kernels``: kernel times from rows or histograms.

Definitions for users are in ``docs/reference/scores.md``.
"""
