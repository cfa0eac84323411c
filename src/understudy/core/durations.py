"""Times as people say them."""

_UNITS = (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1))


def duration_words(seconds: float) -> str:
    """Return a time in its two largest units: ``1 h 12 m``, ``30 m``, ``0.5 s``."""
    if seconds < 60:  # noqa: PLR2004  # a minute
        return f"{seconds:.3g} s"
    seconds = round(seconds)
    unit, size, smaller, part = next(row for row in _UNITS if seconds >= row[1])
    whole, rest = divmod(round(seconds / part), size // part)
    return f"{whole} {unit} {rest} {smaller}" if rest else f"{whole} {unit}"
