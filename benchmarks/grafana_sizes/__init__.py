"""How large the answers are that a page of Grafana gets about a run of 10,000 ranks."""
