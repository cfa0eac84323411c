"""What stores, ships, archives, reads and erases rows of the log, and outcomes."""
