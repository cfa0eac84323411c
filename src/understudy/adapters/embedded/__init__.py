"""A Postgres and a Valkey of our own for demo and tests, and the processes they run in."""
