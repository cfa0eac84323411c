"""Postgres: one module a table or port, over one way to connect."""
