"""Body parser pool: a bulkhead that parses long bodies in threads, few at a time and with a bounded wait."""

from understudy.serving.thread_bulkhead import ThreadBulkhead

MAX_PARSING = 2
"""Bodies that are parsed at once."""
WAIT_SECONDS = 1.0
"""Longest wait for a place. A hostile body of 1 MiB takes a tenth of a second."""


def body_parser_pool() -> ThreadBulkhead:
    """Return a pool; over its wait a body is refused with E507."""
    full = "too many long bodies wait to be parsed"
    return ThreadBulkhead(MAX_PARSING, wait_seconds=WAIT_SECONDS, when_full=full)
