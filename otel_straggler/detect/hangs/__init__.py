"""Who has gone silent and who is stuck, and because of whom. Pure: time is an argument."""
