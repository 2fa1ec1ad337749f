"""Who finds the slow rank: methods side by side on the same labelled runs."""
