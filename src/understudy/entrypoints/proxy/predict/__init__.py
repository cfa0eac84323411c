"""Predict calls: handler, fast path, head cache, body parser pool."""
