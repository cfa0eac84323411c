"""The application with in-memory parts, for all tests here."""

from proxy_world import start

__all__ = ["start"]
