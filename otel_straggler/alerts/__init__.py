"""Alerts: one catalogue, rendered for Prometheus and evaluated by the collector itself."""
