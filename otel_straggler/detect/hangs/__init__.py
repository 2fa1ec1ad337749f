"""Which ranks are silent or stuck, and because of whom. Pure: time is an argument."""
