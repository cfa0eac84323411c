"""scipy's special functions, imported when the first one is asked for.

scipy is a sixth of what starting a proxy costs, and only what judges and reports calls it.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return a function of ``scipy.special``: https://docs.scipy.org/doc/scipy/reference/special.html.

    Raises:
        AttributeError: scipy has no such function.
    """
    from scipy import special  # noqa: PLC0415 - 0.16 s of processor time

    found = globals()[name] = getattr(special, name)
    return found
