"""The application with in-memory parts, for all tests here."""

from worlds.proxy import start

__all__ = ["start"]
