"""Scores: a median of a window against the fastest peer's and against the rank's own best.

They say that a number is low. A low score is never evidence for a verdict: verdicts begin with the
seconds again. To read it in half an hour, in this order:

1. ``scorer`` ``world``: rows find their run and group; one object owns all state of such a world,
   its streams of rows, its kernels and its verdicts.
2. ``stream`` ``windows`` ``sources``: the rows of one incarnation, in a window of 20 steps for
   scores and a block of 5 for verdicts; both close when all ranks have passed them.
3. ``window_scores`` ``formulas`` ``medians`` ``references``: one closed window: tables of ranks x
   sections, medians, best / own, who is listed.
4. ``step_tables``: what verdicts read: seconds by step, rank, section; NaN is "not reported",
   never 0. Rows that came twice and second sessions of a rank are left out there.
5. ``kernel_store`` ``kernels``: kernel times from rows or histograms.

Definitions for users are in ``docs/reference/scores.md``.
"""
