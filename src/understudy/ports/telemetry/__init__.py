"""Metrics and traces of ourselves."""
