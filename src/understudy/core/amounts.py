"""Amounts in a unit of a model's own, such as scores in euros, as people read them."""

_THOUSAND = 1_000
_LARGEST = 1e15
"""From here on a float does not know each whole number."""


def amount_words(value: float, digits: int = 3) -> str:
    """Return a number with so many digits, or whole and with commas where it has that many before its point.

    ``4.12e+05`` is no amount of euros that people compare at a glance with ``3.98e+05``.
    """
    is_whole = min(10**digits, _THOUSAND) - 0.5 <= abs(value) < _LARGEST
    return f"{value:,.0f}" if is_whole else f"{value:.{digits}g}"
