"""Whether a slow rank is named in every way to have a training watched; ``python -m`` measures it."""
