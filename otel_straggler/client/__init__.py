"""The training process: sections and steps, their recorder, GPU timing, diagnostics and export."""
