"""Loading in Postgres: what agents read and record, what the monitor decides, and what people ask for."""
