"""Protocols of model servers that callers may keep: each is a reader and a writer of the one story of a call."""
