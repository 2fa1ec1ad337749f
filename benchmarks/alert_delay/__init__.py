"""From a fault in a real training to the webhook of an Alertmanager; ``python -m`` measures it."""
