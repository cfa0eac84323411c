"""Predict calls: handler, and fast path."""
