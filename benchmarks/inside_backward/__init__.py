"""Whether a rank that is slow inside ``backward`` is named; ``python -m`` measures it."""
