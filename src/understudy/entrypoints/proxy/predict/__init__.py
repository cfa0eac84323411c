"""Predict calls: handler, fast path, body parser pool."""
