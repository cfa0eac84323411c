"""Metrics for Prometheus, traces for OpenTelemetry, and what the process uses."""
