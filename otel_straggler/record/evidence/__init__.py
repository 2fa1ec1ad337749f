"""What a rank that is stuck was doing: stacks of all threads, when it asks itself or is asked."""
