"""Contexts: proxies that commands go to with a key, and which of them, or the database, a command uses."""
