"""Calls of the control plane: bodies, handler, worker pool, read models."""
