"""The prediction log in Postgres: its rows, its months, and what of it is archived."""
