"""In-memory twins of the ports, for tests."""
