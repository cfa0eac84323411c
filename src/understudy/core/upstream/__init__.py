"""Calls to model servers: replica choice, hedging, circuit breaker, endpoint rules, trace context."""
