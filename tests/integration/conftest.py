"""No authority of the machine is trusted, for all tests here."""

from loopback.authorities import one_authority

__all__ = ["one_authority"]
