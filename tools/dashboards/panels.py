"""What a dashboard consists of, and the words that its queries share."""

from typing import Any, NamedTuple

CALLERS = 'role=~"champion|challenger"'
BY_CHALLENGER = 'role="challenger"'
FAILED = 'outcome=~"timeout|unavailable|bad_answer|error"'
NO_FALLBACK = 'outcome!="fallback"'
HIT = 'result="hit"'
OF_MODEL = 'model="$model"'
OF_PROXY = 'instance=~"$proxies"'
LEADING = "and on (instance) monitor_leader == 1"
# Okabe and Ito's colours, as everywhere in the product; the names differ as well, never the colour alone.
COLOURS = {"champion": "#0072B2", "challenger": "#D55E00", "shadow": "#8A2BE2"}
GREEN, YELLOW, RED, GREY = "green", "#E69F00", "red", "#808080"


class Query(NamedTuple):
    """A query; ``legend`` names its series. ``instant`` asks for now alone, as tables do."""

    expr: str
    legend: str = ""
    instant: bool = False


class Panel(NamedTuple):
    """A panel. ``text`` says what a good value is and what a bad one means; ``steps`` are where the colour changes."""

    title: str
    queries: tuple[Query, ...]
    text: str
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    steps: tuple[tuple[float | None, str], ...] = ()
    minimum: float | None = 0
    maximum: float | None = None
    decimals: int | None = None
    stacked: bool = False
    alerts: tuple[str, ...] = ()
    """Whose runbooks are linked."""
    words: tuple[tuple[float, str, str], ...] = ()
    """Values that are shown as a word, in a colour."""
    columns: tuple[tuple[str, str, str], ...] = ()
    """Of a table: each query's letter or label, its title and unit; what is not named is hidden."""
    has_bands: bool = False
    """Of a heat map: each series has its own band's count, and not that of all bands up to ``le``."""


class Row(NamedTuple):
    """A heading above panels."""

    title: str


class Dashboard(NamedTuple):
    """A dashboard; ``has_model`` is whether it is of one model."""

    name: str
    title: str
    text: str
    parts: tuple[Panel | Row, ...]
    has_model: bool = False
    span: str = "now-1h"


def rate(metric: str, by: str, where: str = "") -> str:
    """Return the rate of a counter, summed."""
    return f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))"


def increase(metric: str, by: str, where: str = "", window: str = "$__rate_interval") -> str:
    """Return how much a counter grew, summed."""
    return f"sum by ({by}) (increase({metric}{{{where}}}[{window}]))"


def quantile(share: float, metric: str, by: str, where: str = "") -> str:
    """Return a quantile of a histogram."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'{by}, le', where)})"


def stat(title: str, query: Query, text: str, **more: Any) -> Panel:
    """Return one large figure."""
    return Panel(title, (query,), text, kind="stat", **{"width": 4, "height": 4, **more})


OK_BELOW_ONE = ((None, GREEN), (1.0, RED))
ERROR_STEPS = ((None, GREEN), (0.001, YELLOW), (0.0144, RED))
SLOW_STEPS = ((None, GREEN), (0.1, RED))
SHARE_STEPS = ((None, RED), (0.25, YELLOW), (0.5, GREEN))
CHECK_WORDS = (
    (0.0, "pass", GREEN),
    (1.0, "too early", GREY),
    (2.0, "worse, not proven", YELLOW),
    (2.5, "warming", "#F0E442"),
    (2.75, "champion failed too", "#F0E442"),
    (3.0, "fail", RED),
    (4.0, "invalid", "#CC79A7"),
)
YES_NO = ((0.0, "NO", RED), (1.0, "yes", GREEN))
