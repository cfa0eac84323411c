"""The first names of a list that may be long."""

from collections.abc import Iterable


def first_names(names: Iterable[str], most: int, between: str = ", ") -> str:
    """Return at most so many names in one line, and how many more there are; nothing of an empty list."""
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return between.join(every[:most]) + more
