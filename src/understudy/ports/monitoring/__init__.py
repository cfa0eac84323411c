"""What the monitor leads by, reads and keeps: lease, windows, metrics, alerts, recent changes, retention."""
