"""The page of a model's shadow, in the words and figures of ``understudy shadow report``."""

from shlex import quote
from typing import NamedTuple

from understudy.entrypoints.charts.frame import Chart
from understudy.entrypoints.cli.shadow.page import charts_of, disagreement_rows, figures_of
from understudy.entrypoints.cli.shadow.text import Label, heading_line, names_of, next_step
from understudy.entrypoints.console.views.links import prediction_path
from understudy.experiments.shadow_report import ShadowFinding

THRESHOLD = 0.5
"""Scores from here on are a yes, as by default on the command line."""


class Disagreement(NamedTuple):
    """A call that the two saw differently."""

    prediction_id: str
    href: str
    champion: str
    shadow: str


class ShadowPage(NamedTuple):
    """What the shadow made of the champion's calls."""

    model: str
    heading: str
    sentence: str
    sides: tuple[str, str]
    rows: tuple[tuple[str, str, str, str], ...]
    largest: tuple[Disagreement, ...]
    next_words: str
    commands: tuple[str, ...]


class ShadowSeen(NamedTuple):
    """A report, and what its versions are called."""

    model: str
    found: ShadowFinding
    label: Label


def shadow_page(seen: ShadowSeen) -> ShadowPage:
    """Return the page."""
    found, label = seen.found, seen.label
    command = f"understudy shadow report {quote(seen.model)}"
    return ShadowPage(
        seen.model,
        ", ".join(part.strip() for part in heading_line(found, seen.model, label).split("  ") if part.strip()),
        found.report.sentence,
        names_of(found, label),
        tuple(figures_of(found, THRESHOLD)),
        tuple(Disagreement(named, prediction_path(named), *both) for named, *both in disagreement_rows(found)),
        next_step(found.report, seen.model),
        (command, f"{command} --html shadow.html"),
    )


def shadow_charts(seen: ShadowSeen) -> list[Chart]:
    """Return what is drawn."""
    return charts_of(seen.found, seen.label)
