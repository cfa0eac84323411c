"""Amounts in a unit of a model's own, such as scores in euros, as people read them."""

import re
from itertools import zip_longest

_THOUSAND = 1_000
_LARGEST = 1e15
"""From here on a float does not know each whole number."""
_AMOUNT = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?")


def amount_words(value: float, digits: int = 3) -> str:
    """Return a number with so many digits, or whole and with commas where it has that many before its point.

    ``4.12e+05`` is no amount of euros that people compare at a glance with ``3.98e+05``.
    """
    is_whole = min(10**digits, _THOUSAND) - 0.5 <= abs(value) < _LARGEST
    return f"{value:,.0f}" if is_whole else f"{value:.{digits}g}"


def says_the_same(words: str, before: str) -> bool:
    """Whether a sentence says what another one said before ADR 152, when ``412,345`` was told as ``4.12e+05``."""
    if words == before:
        return True
    if _AMOUNT.split(words) != _AMOUNT.split(before):
        return False
    amounts = zip_longest(_AMOUNT.findall(words), _AMOUNT.findall(before), fillvalue="")
    return all(now == then or _is_rounded(now, then) for now, then in amounts)


def _is_rounded(whole: str, then: str) -> bool:
    """Whether a whole amount is what was told with an exponent, within what both forms round."""
    digits, has_exponent, exponent = then.partition("e+")
    if not has_exponent or not whole.replace(",", "").isdecimal():
        return False
    unit = 10.0 ** (int(exponent) - len(digits.partition(".")[2]))
    return abs(float(whole.replace(",", "")) - float(then)) <= unit / 2 + 1 / 2
