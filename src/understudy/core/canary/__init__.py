"""Canary analysis: one module a check, their limits, messages, and the decision."""
