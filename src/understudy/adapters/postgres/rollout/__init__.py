"""Rollouts in Postgres: each transition is one transaction."""
