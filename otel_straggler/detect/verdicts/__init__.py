"""Verdicts: who is slower than its peers by more than chance, whether others wait for it, and why.

Start with ``engine.VerdictEngine._evaluate_block``. A block of 5 steps goes through

1. ``blocks`` ``world``: does it count, who is there, who is compared with whom;
2. ``clocks`` ``resolution`` ``equal_work``: by which clock; its tick; times for equal work;
3. ``waits`` ``excess`` ``hidden``: which sections hold waiting; each rank's log excess over its
peers and its lateness, (T, R, C); whether a slow rank would show;
4. ``track`` ``noise`` ``significance`` ``stalls``: windows of 20, 100, and 400 steps against the
peers' spread or the own past, by the noise measured at 5, 20, and 100 steps, and verified CUSUM;
stalls that no median shows;
5. ``candidates``: a candidate per rank or host, with section and cause, unless ranks take turns;
6. ``peer_engine`` ``drafts`` ``log`` ``sentences``: ranks or their host; what a verdict states;
states; notifications; text;
7. ``run_engine``: what no peer shows: all are slower, or some, or the link;
8. ``structure`` ``pipeline`` ``imbalance`` ``summary``: how work is spread, and what that costs.

``memory`` and ``history`` keep what outlives a world of ranks. A new cause is an entry in
``model/causes.py`` and a finder in ``candidates``, ``run_engine``, or ``structure``. A constant's
value is from the literature if its module names a source; else it was chosen on generated runs with
the tuning seeds (``docs/internals/detection-accuracy.md``). Definitions for users are in
``docs/operate/verdicts.md``.
"""
