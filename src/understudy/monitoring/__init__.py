"""Seeing what each version does, and saying so to people."""
