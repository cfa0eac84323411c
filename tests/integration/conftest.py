"""No authority of the machine is trusted, for all tests here."""

from loopback.authorities import no_authorities

__all__ = ["no_authorities"]
