"""What people are told of, and when: one catalogue, for Prometheus and for the collector itself."""
