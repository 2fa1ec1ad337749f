"""Layer 2: verdicts. One method a module; ``judge`` composes them, block after block of 5 steps.

Read ``judge.Judge._judge`` first: it is the list of contents. A block goes through

1. ``intervals`` ``opening`` ``world`` ``grouping`` ``peers``: does it count, who is there, who
   does the same work (and is compared);
2. ``clocks`` ``work`` ``work_evidence`` ``work_classes``: by which clock; times for equal work;
3. ``waits`` ``inner`` ``evened`` ``excess``: which sections hold waiting, and by how much each
   rank takes longer than its peers in the others, or makes them wait. From here on all is
   (T, R, C): own work together, each section, lateness;
4. ``tracks`` ``track`` ``findings`` ``comparison`` ``onset`` ``resolvable`` ``resolution``
   ``intermittent`` ``stalls``: memory, and the two tests: windows of 20, 100 and 400 steps against
   the peers' spread or the own past, and CUSUM, verified; stalls that no median sees;
5. ``view`` ``candidates`` ``extra_work`` ``impact`` ``many_slow``: what is found and dear enough,
   as one candidate for each rank or host, with section and cause;
6. ``peer_judge`` ``standing`` ``cases`` ``paging`` ``sentences``: ranks or their host; suspect,
   confirmed, recovered; who is called; words;
7. ``run_judge`` ``own_past`` ``risen``: what no peer can tell: all slower, or some, or the link;
8. ``structure`` and what it asks (``workers`` ``what_if`` ``stages`` ``imbalance``
   ``expert_imbalance`` ``joined``), ``ledger`` ``summing_up``: how work is spread, what it costs.

``memory`` ``own_history`` ``keyed`` keep what outlives a world of ranks; ``settings`` ``subjects``
``step_numbers`` are small things that many use.

A constant says what it is for where it stands. Its value is from the literature if its module
names a source; else it was chosen on the generated runs with the seeds for tuning, and holds on
those that are reported (``docs/internals/detection-accuracy.md``).
"""
