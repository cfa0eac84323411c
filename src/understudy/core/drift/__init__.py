"""Drift detection: measures, baselines, hours, detector and report."""
