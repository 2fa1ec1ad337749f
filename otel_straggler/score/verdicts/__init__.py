"""Layer 2: verdicts. One method a module; ``judge`` composes them."""
