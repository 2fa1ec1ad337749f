"""What one hostile sender costs, and what an honest run next to it sees."""
