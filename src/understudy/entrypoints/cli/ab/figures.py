"""How the figures of an A/B report are written."""

from collections.abc import Callable

from understudy.entrypoints.cli.shared.rendering import MINUS
from understudy.experiments.ab_report import AbReport

Label = Callable[[int], str]
_TINY = 0.001


def decimals_for(reach: float, *, is_share: bool) -> int:
    """Return how many decimals show two digits of what lies on either side of a difference."""
    shown = reach * (100 if is_share else 1)
    return next((places for places in range(7) if shown * 10**places >= 10), 6)  # noqa: PLR2004  # two digits


def signed(value: float, report: AbReport, decimals: int) -> str:
    """Return a difference with its sign; in points for a share."""
    return f"{value * (100 if report.is_share else 1):+,.{decimals}f}".replace("-", MINUS)


def unit(report: AbReport) -> str:
    """Return the unit of a difference."""
    return " points" if report.is_share else ""


def difference_words(value: float, report: AbReport, decimals: int) -> str:
    """Return a difference of an A/B report with its sign and unit."""
    return f"{signed(value, report, decimals)}{unit(report)}"


def p_words(p_value: float) -> str:
    """Return a p-value with two digits."""
    return "< 0.001" if p_value < _TINY else f"{p_value:.2g}"


def percent_words(alpha: float) -> str:
    """Return how sure an interval is that is wrong with this chance, in percent."""
    return f"{100 * (1 - alpha):.4g}"
