"""An embedded Postgres and Valkey for the demo and the tests, and their processes."""
