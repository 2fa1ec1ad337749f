"""Trainings of two minutes as a new user would start them, and whether what is said is true."""
