"""From rows of durations to "who is slow, since when, why, what it costs". Pure: no clock, no I/O.

Two layers see the same rows. **Layer 1** gives scores, NVRx's numbers: a median of a window
against the fastest peer's and against the rank's own best. It says that a number is low. **Layer
2** gives verdicts: it follows every rank step by step, and says who is slower than its peers by
more than chance, whether others wait for it, and why. A low score is never evidence for a verdict:
layer 2 begins with the seconds again. ``hangs`` is about those who send nothing any more.

To read it in an hour, in this order:

====== ============================================== =============================================
min    files                                          idea
====== ============================================== =============================================
10     ``scorer`` ``stream`` ``lanes`` ``windows``    rows find their world (attempt, incarnation),
                                                      there a window of 20 steps and a block of 5;
                                                      both close when all ranks have passed them
5      ``deliveries`` ``names`` ``step_order``        what came twice, two sessions of a rank, order
10     ``layer1`` ``medians`` ``section_scores``      one closed window: tables of ranks x sections,
       ``gpu_scores`` ``references`` ``stragglers``   medians, best / own, thresholds
5      ``step_tables`` and ``model/step_table``       what layer 2 reads: seconds by step, rank,
                                                      section; NaN is "not told", never 0
25     ``verdicts`` (see its own order)               excess over the peers, evidence over time,
                                                      cause, states, words
5      ``hangs/judge``                                signs of life: who is waited for
====== ============================================== =============================================

The rest serves these: ``kernel_store`` ``kernels`` ``kernel_medians`` (kernel times from
histograms), ``judges`` (one judge for each run and group), ``clashes`` (two processes that claim a
rank), ``own_scores`` (a rank that scores itself), ``seen`` (a cache of sources).

Units: seconds where a name ends in ``_s``, nanoseconds of the sender's clock in ``_ns``; what is
called excess, effect or rise is a logarithm (0.1 is about 10 % longer). Letters of shapes: T
steps, R ranks, S sections, C quantities, G groups of peers, H hosts. NaN is "not known" throughout
and takes no part. Definitions for users are in ``docs/reference/scores.md`` and
``docs/operate/verdicts.md``, decisions in ``docs/decisions/``.
"""
