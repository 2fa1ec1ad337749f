"""Whether a slow rank is named, however its training is watched; ``python -m`` measures it."""
