"""The node's agent: watches the heartbeats and sections of its ranks, and acts on timeouts."""
