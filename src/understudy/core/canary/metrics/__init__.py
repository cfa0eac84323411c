"""Metrics of an operator's own: what Prometheus says of champion and challenger in the same minutes."""
