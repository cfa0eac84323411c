"""Hostile input against the running proxy: what is sent, what must hold, and a table of what was found."""
