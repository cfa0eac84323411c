"""What the monitor keeps in Postgres: its lease, windows, metrics, alerts, and what is deleted when."""
