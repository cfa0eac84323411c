"""Measures what each version does: metrics, drift, alerts."""
