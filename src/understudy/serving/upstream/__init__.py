"""Calls to model servers: backend pool, batching, load shedding, row deadlines, cached inference, champion health."""
