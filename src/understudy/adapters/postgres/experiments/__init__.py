"""A/B tests in Postgres: what the log says of them, how they were declared, and their outcomes."""
