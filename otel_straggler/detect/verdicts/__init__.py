"""Verdicts: who is slower than its peers by more than chance, whether others wait for it, and why.

Read ``engine.VerdictEngine._evaluate_block`` first: it is the list of contents. A block of 5 steps
goes through

1. ``blocks`` ``world`` ``groups``: does it count, who is there, who does the same work (and is
   compared);
2. ``clocks`` ``equal_work`` ``unequal_work``: by which clock; times for equal work;
3. ``waits`` ``excess``: which sections hold waiting, and by how much each rank takes longer than
   its peers in the others, or makes them wait. From here on all is (T, R, C): own work together,
   each section, lateness;
4. ``track`` ``significance`` ``stalls``: memory, and the two tests: windows of 20, 100 and 400
   steps against the peers' spread or the own past, and CUSUM, verified; stalls that no median sees;
5. ``candidates``: what is beyond chance and costly enough, as one candidate for each rank or host,
   with section and cause;
6. ``peer_engine`` ``log`` ``sentences``: ranks or their host; suspect, confirmed, recovered; who is
   notified; in words;
7. ``run_engine``: what no peer can tell: all are slower, or some, or the link;
8. ``structure`` ``pipeline`` ``imbalance`` ``summary``: how work is spread, and what that costs.

``memory`` and ``history`` keep what outlives a world of ranks. A new cause is an entry in
``model/causes.py`` and a finder that drafts the verdict: of a rank or host in ``candidates``, of
the run or a group of peers in ``run_engine``, of the layout in ``structure``.

A constant says what it is for where it stands. Its value is from the literature if its module
names a source; else it was chosen on the generated runs with the seeds for tuning, and holds on
those that are reported (``docs/internals/detection-accuracy.md``). Definitions for users are in
``docs/operate/verdicts.md``.
"""
