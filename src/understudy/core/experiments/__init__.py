"""A/B tests, outcome events, and the comparison of shadow or replayed answers."""
