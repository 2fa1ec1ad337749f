"""What it costs to get spans out of a training process; see ``__main__``."""
