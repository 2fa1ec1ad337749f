"""What a report without a collector costs, and whether its scores are NVRx's; see ``__main__``."""
