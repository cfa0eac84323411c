"""The pages of declared tests: the list, and one with what is known of it now."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from understudy.core.experiments.ab import AbState
from understudy.entrypoints.charts.frame import Chart
from understudy.entrypoints.cli.ab.arms_text import arm_rows, arm_titles, arms_line, notes
from understudy.entrypoints.cli.ab.figures import Label
from understudy.entrypoints.cli.ab.page import charts_of, sides_of
from understudy.entrypoints.cli.ab.tests_text import cells_of, standing_words
from understudy.entrypoints.cli.ab.text import (
    DIFFERENCE,
    evidence_rows,
    heading_lines,
    next_step,
    verdict_lines,
)
from understudy.entrypoints.console.views.links import STOP, TAKE, act_path, experiment_path, experiments_path
from understudy.entrypoints.console.views.tone import Tone
from understudy.experiments.ab_report import AbReport
from understudy.experiments.listed_tests import ListedTest

_TONES = {AbState.B_BETTER: Tone.GOOD, AbState.A_BETTER: Tone.BAD, AbState.INVALID: Tone.BAD}


class TestRow(NamedTuple):
    """A declared test."""

    id: str
    href: str
    metric: str
    sides: str
    counts_from: str
    declared_by: str
    standing: str
    word: str
    tone: Tone


class ExperimentsPage(NamedTuple):
    """The declared tests of a model."""

    model: str
    sentence: str
    rows: tuple[TestRow, ...]
    declare_href: str
    commands: tuple[str, ...]


class LookRow(NamedTuple):
    """An interim analysis that was taken."""

    share: str
    sentence: str


class ExperimentPage(NamedTuple):
    """One declared test, and what is known of it now."""

    model: str
    test_id: int
    title: str
    sentence: str
    tone: Tone
    lines: tuple[str, ...]
    heading: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    arm_columns: tuple[str, ...]
    arm_rows: tuple[tuple[str, ...], ...]
    looks: tuple[LookRow, ...]
    next_words: str
    commands: tuple[str, ...]
    take_href: str
    """Of the act that takes an interim analysis; empty where none is due."""
    stop_href: str
    """Of the act that ends it; empty for one that is over."""


class ExperimentSeen(NamedTuple):
    """What was read of a declared test."""

    listed: ListedTest
    report: AbReport | None
    """``None`` for one that is not the newest of its kind, or cannot be read: its row alone is told."""
    label: Label
    is_look_due: bool = False


def experiments_page(model: str, found: Sequence[ListedTest], labels: Mapping[int, str]) -> ExperimentsPage:
    """Return the page."""
    rows = tuple(_row(one, labels) for one in found)
    is_open = [row for row in rows if row.word == "open"]
    sentence = f"No test of {model} was declared yet. Without one, A/B figures may be looked at, and decide nothing."
    if rows:
        sentence = f"{len(is_open)} of {len(rows)} tests of {model} {'is' if len(is_open) == 1 else 'are'} open."
    name = quote(model)
    commands = (f"understudy ab list {name}", f"understudy ab plan {name} --metric NAME")
    return ExperimentsPage(model, sentence, rows, f"{experiments_path(model)}/new", commands)


def experiment_page(seen: ExperimentSeen) -> ExperimentPage:
    """Return the page; with a report its words are those of ``understudy ab report``."""
    record, report = seen.listed.record, seen.report
    model, metric = record.model_name, record.metric
    test, test_id = seen.listed.test, record.id
    sides = f"{seen.label(record.challenger_id)} against {seen.label(record.champion_id)}"
    name = quote(model)
    is_open = test is not None and test.is_open
    looks = [] if test is None else [LookRow(f"{100 * one.fraction:.0f} %", one.sentence) for one in test.looks]
    commands = (f"understudy ab report {name} --metric {quote(metric)}", f"understudy ab list {name}")
    page = ExperimentPage(
        model, test_id, f"{metric}: {sides}", standing_words(seen.listed), Tone.CALM, (), (), (), (), (), (),
        tuple(looks), "", commands,
        _act(model, TAKE, test_id) if is_open and seen.is_look_due else "",
        _act(model, STOP, test_id) if is_open else "",
    )  # fmt: skip
    return page if report is None else _reported(page, report, metric, seen.label)


def experiment_charts(seen: ExperimentSeen) -> list[Chart]:
    """Return what is drawn: the interval over time, and the scores."""
    return [] if seen.report is None else charts_of(seen.report, seen.listed.record.metric, seen.label)


def _reported(page: ExperimentPage, report: AbReport, metric: str, label: Label) -> ExperimentPage:
    """Return a page with what a report says."""
    sentence, *lines = verdict_lines(report)
    arms = [] if report.arms is None else [arms_line(report), *notes(report)]
    heading = [", ".join(filter(None, line.split("   "))) for line in heading_lines(report, page.model, metric, label)]
    return page._replace(
        sentence=sentence,
        tone=next((tone for state, tone in _TONES.items() if state == report.state), Tone.CALM),
        lines=(*lines, *arms),
        heading=tuple(heading),
        columns=("figure", *sides_of(report, label), DIFFERENCE),
        rows=tuple((name.strip(), *cells) for name, *cells in evidence_rows(report, metric)),
        arm_columns=tuple(arm_titles(report)),
        arm_rows=tuple(arm_rows(report, label)),
        next_words=_next_words(report, page.model, metric, label),
    )


def _next_words(report: AbReport, model: str, metric: str, label: Label) -> str:
    """Return the next command; the report on the command line takes a look that is due, which a page does not."""
    if report.is_look_due:
        return "take the look. The report on the command line takes it, too: it cannot be asked without."
    return " ".join(next_step(report, model, metric, label).split())


def _row(found: ListedTest, labels: Mapping[int, str]) -> TestRow:
    test_id, model, metric, a, b, counts_from, by, standing = cells_of(found, labels, utc=False)
    if found.test is None:
        word, tone = "unreadable", Tone.WAIT
    elif found.test.is_open:
        word, tone = "open", Tone.HERE
    else:
        word, tone = ("decided", Tone.CALM) if found.test.decision is not None else ("ended", Tone.CALM)
    href = experiment_path(model, found.record.id)
    return TestRow(test_id, href, metric, f"{b} against {a}", counts_from, by, standing, word, tone)


def _act(model: str, act: str, test_id: int) -> str:
    return f"{act_path(model, act, None)}?test={test_id}"
