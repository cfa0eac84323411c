"""Metrics for Prometheus, traces for OpenTelemetry, and the resources of the process."""
