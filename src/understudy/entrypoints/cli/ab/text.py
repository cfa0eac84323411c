"""What ``understudy ab`` says: the verdict first, its evidence under it, the next command last."""

from shlex import quote
from typing import Any, NamedTuple

from rich.text import Text

from understudy.core.durations import duration_words, exact_duration
from understudy.core.experiments.ab import AbState
from understudy.core.statistics.sample_size import ALPHA, POWER_RATIO, REFERENCE_ONE_SAMPLE, reference_sample_size
from understudy.entrypoints.cli.ab.arms_text import arms_texts
from understudy.entrypoints.cli.ab.asked import WITHIN
from understudy.entrypoints.cli.ab.figures import (
    Label,
    decimals_for,
    difference_words,
    p_words,
    percent_words,
    signed,
    unit,
)
from understudy.entrypoints.cli.ab.quantiles_text import quantiles_texts
from understudy.entrypoints.cli.shared.rendering import MINUS, Column, a_table, facts
from understudy.entrypoints.cli.shared.times import day_of, moment_words, seconds_of
from understudy.experiments.ab_plan import TRAFFIC_DAYS, AbSizes, PlanQuestion
from understudy.experiments.ab_report import AbReport, NoAnswer
from understudy.experiments.declared_tests import MetricChoice, Wanted

Row = tuple[str, str, str, str]
_STYLES = {
    AbState.B_BETTER: "bold green",
    AbState.A_BETTER: "bold red",
    AbState.NO_DIFFERENCE: "bold",
    AbState.INVALID: "bold red",
}
DIFFERENCE = f"B {MINUS} A"
_TINY = 0.001


def report_texts(report: AbReport, model_name: str, metric: str, label: Label) -> list[Any]:
    """Return a report for people."""
    style = _STYLES.get(report.state, "bold") if isinstance(report.state, AbState) else "bold"
    head = Text("\n".join(heading_lines(report, model_name, metric, label)), "dim")
    head.stylize("bold", 0, len(model_name))
    first, *others = verdict_lines(report)
    texts: list[Any] = [head, "", Text(first, style), *map(Text, others)]
    rows = evidence_rows(report, metric)
    if rows:
        titles = ("", f"A {label(report.found.champion_id)}", f"B {label(report.found.challenger_id)}", DIFFERENCE)
        texts += ["", a_table([Column(title, right=place > 0) for place, title in enumerate(titles)], rows)]
    texts += [*arms_texts(report, label), *quantiles_texts(report, metric, label)]
    return [*texts, "", Text(f"→ {next_step(report, model_name, metric, label)}", "cyan")]


def heading_lines(report: AbReport, model_name: str, metric: str, label: Label) -> list[str]:
    """Return what is compared, and when."""
    a, b = label(report.found.champion_id), label(report.found.challenger_id)
    role = "further arm" if _is_further_arm(report) else "challenger"
    per = " per call" if report.choice.per_call else ""
    since = f"   {day_of(report.since)} to {day_of(report.until)}" if report.since is not None else ""
    return [
        f"{model_name}  A {a} (champion) against B {b} ({role})",
        f"{metric}{per}, within {duration_words(report.choice.within_seconds)} of an entity's first call{since}",
    ]


def _is_further_arm(report: AbReport) -> bool:
    """Whether B is a further arm today."""
    return any(report.found.challenger_id in latest.arms for latest in report.found.allocations[-1:])


def verdict_lines(report: AbReport) -> list[str]:
    """Return the answer, and what it still waits for."""
    lines = [report.sentence]
    test = report.found.test
    if test is not None and test.decision is not None:
        decided = test.decision
        lines.append(
            f"Decided at look {len(test.looks)} of {test.plan.looks}, on {day_of(decided.at)}; the figures are today's."
        )
    elif test is not None and test.is_open and isinstance(report.state, AbState):
        taken = len(test.looks)
        so_far = f"{100 * report.fraction:.0f} % of {test.plan.entities_per_arm:,} entities an arm are in"
        lines.append(f"{taken} of {test.plan.looks} looks taken; {so_far}.")
    counts = test is not None and (test.is_open or test.decision is not None)
    if test is not None and counts and test.plan.declared_at is not None:
        lines.append(_declared_late(test.record.started_at, test.plan.declared_at))
    if report.forecast is not None:
        lines.append(report.forecast.sentence)
    if report.sampled_ratio < 1:
        lines.append(f"Computed from a random {100 * report.sampled_ratio:.2g} % of the entities.")
    return lines


def _declared_late(started_at: float, declared_at: float) -> str:
    before = duration_words(declared_at - started_at)
    return (
        f"It counts calls from {moment_words(started_at)} UTC on, {before} before it was declared: if a report on them "
        "led to it, its alpha does not hold."
    )


def evidence_rows(report: AbReport, metric: str) -> list[Row]:
    """Return what the verdict rests on: a name, A's figure, B's, and how they differ."""
    a, b = report.a, report.b
    if a is None or b is None:
        return []
    steps = f" of {len(report.split)} steps" if len(report.split) > 1 else ""
    rows: list[Row] = [
        (f"entities{steps}", f"{a.closed:,}", f"{b.closed:,}", _ratio_words(report)),
        ("too recent to count", f"{a.entered - a.closed:,}", f"{b.entered - b.closed:,}", ""),
        ("with an outcome", _percent(a.with_outcome, a.closed), _percent(b.with_outcome, b.closed), ""),
        ("answered by their own", _percent(a.own_calls, a.calls), _percent(b.own_calls, b.calls), ""),
    ]
    return rows + _difference_rows(report, metric) + _score_rows(report) + _rank_rows(report, metric)


def next_step(report: AbReport, model_name: str, metric: str, label: Label) -> str:
    """Return the next command, and what it is for."""
    b, is_further = label(report.found.challenger_id), _is_further_arm(report)
    ends, gone = (f"--arm {quote(f'{b}=0')}",) * 2 if is_further else ("--weight 0", "--challenger none")
    to_champion = f"understudy model set {quote(model_name)} {ends} gives all calls of B to A"
    steps = {
        NoAnswer.NO_TRAFFIC: f"understudy model show {quote(model_name)} shows the split",
        NoAnswer.NO_OUTCOMES: "understudy ab outcomes import FILE.csv, or POST /v1/outcomes",
        AbState.INVALID: f"understudy audit list {quote(model_name)} shows who changed the split, and when",
        AbState.B_BETTER: f"understudy model set {quote(model_name)} --champion {quote(b)} {gone} promotes B",
        AbState.A_BETTER: to_champion,
        AbState.NO_DIFFERENCE: to_champion,
    }
    if report.state in steps:
        return steps[report.state]
    words, test = f"understudy ab report {quote(model_name)} --metric {quote(metric)}", report.found.test
    words += f" --version {quote(b)}" if is_further else ""
    if test is None or not test.is_open:
        options = f"--effect {effect_text(report.wanted)}{choice_options(report.choice)}"
        return f"{words} --looks 5 {options}\n  declares a test, which can decide"
    return f"{words} --html report.html\n  draws the interval over time"


def effect_text(wanted: Wanted) -> str:
    """Return an effect as the option takes it."""
    return f"{100 * wanted.amount:.4g}{'%' if wanted.is_relative else 'pt'}"


def choice_options(choice: MetricChoice) -> str:
    """Return the options by which outcomes count so, with a space before each; nothing for the usual way."""
    within = choice.within_seconds
    given = {
        f"--within {exact_duration(within)}": within != seconds_of(WITHIN, "--within"),
        "--per-call": choice.per_call,
        "--lower-is-better": not choice.higher_is_better,
    }
    return "".join(f" {option}" for option, is_given in given.items() if is_given)


class SizesWords(NamedTuple):
    """A plan in words."""

    change: str
    terms: str
    sentence: str
    facts: list[tuple[str, str]]


def sizes_words(sizes: AbSizes, question: PlanQuestion) -> SizesWords:
    """Return what a test is to see, on which terms, how many entities that takes, and how long."""
    baseline, metric = sizes.baseline, question.metric or "a metric"
    change = sizes.wanted.words(is_share=baseline.is_share)
    shared = f", shared by {1 + len(sizes.beside)} versions" if sizes.beside else ""
    terms = f"{100 * POWER_RATIO:.0f} % power, alpha {100 * ALPHA:.0f} %, two-sided{shared}"
    need = f"Each of two versions needs {sizes.one_look:,} entities, and with {sizes.looks} looks {sizes.with_looks:,}."
    verdict = need if sizes.looks > 1 else f"Each of two versions needs {sizes.one_look:,} entities."
    pairs = [
        ("at half and half", _days(sizes.days_even, sizes)),
        ("at today's weight", _today(sizes)),
        ("entities a day", f"{baseline.entities_per_day:,.0f}, over up to {TRAFFIC_DAYS:.0f} days"),
        ("the champion's figures", _baseline_words(sizes, question)),
    ]
    return SizesWords(f"{change} of {metric}", terms, verdict, pairs)


def declare_command(sizes: AbSizes, question: PlanQuestion) -> str:
    """Return the command that declares a test of this size."""
    words = f"understudy ab report {quote(question.model_name)} --metric {quote(question.metric or 'NAME')}"
    return f"{words} --looks {sizes.looks} --effect {effect_text(sizes.wanted)}{choice_options(question.choice)}"


def sizes_texts(sizes: AbSizes, question: PlanQuestion) -> list[Any]:
    """Return a plan for people."""
    said = sizes_words(sizes, question)
    head = Text(f"{question.model_name}  {said.change}", "bold").append(f"   {said.terms}", "dim")
    then = f"→ {declare_command(sizes, question)}\n  declares the test"
    return [head, "", Text(said.sentence, "bold"), facts(said.facts), "", Text(then, "cyan")]


def reference_texts(wanted: Wanted) -> list[Any]:
    """Return seed 003's figures, and what they are worth with two arms."""
    ratios = sorted({*REFERENCE_ONE_SAMPLE, *([wanted.amount] if wanted.is_relative else [])})
    figures = [(ratio, reference_sample_size(ratio)) for ratio in ratios]
    rows = [
        (
            f"{100 * ratio:.3g} %",
            f"{found.entities_per_arm:,}",
            f"{100 * found.power_ratio:.1f} %",
            f"{found.two_sample_entities_per_arm:,}",
        )
        for ratio, found in figures
    ]
    columns = [
        Column("change"),
        Column("seed 003, one sample", right=True),
        Column("its power with two arms", right=True),
        Column("two arms need, each", right=True),
    ]
    said = "Seed 003's figures are one-sample: they compare one group with a value that is known exactly."
    return [Text(said, "bold"), a_table(columns, rows), ""]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _ratio_words(report: AbReport) -> str:
    ratio = report.ratio
    if ratio is None:
        return ""
    return f"sample ratio p {p_words(ratio.p_value)} {'✖' if ratio.is_mismatch else '✔'}"


def _difference_rows(report: AbReport, metric: str) -> list[Row]:
    found = report.difference
    if found is None:
        return []
    spread = report.interval.high - report.interval.low if report.interval is not None else 4 * found.standard_error
    decimals = decimals_for(spread / 2, is_share=report.is_share)
    value_a, value_b = (_value(value, report, decimals) for value in (found.value_a, found.value_b))
    rows: list[Row] = [(metric, value_a, value_b, difference_words(found.difference, report, decimals))]
    if report.interval is not None:
        kind = "at any time" if report.interval.always_valid else "at this look"
        low, high = (signed(bound, report, decimals) for bound in report.interval[:2])
        rows.append((f"  {percent_words(report.alpha)} % {kind}", "", "", f"{low} … {high}{unit(report)}"))
    if found.theta is not None:
        rows.append(("  spread left by the past", "", "", f"{100 * found.variance_kept_ratio:.0f} % of the variance"))
    return rows


def _score_rows(report: AbReport) -> list[Row]:
    if report.scores is None or report.scores.ranks is None:
        return []
    found = report.scores.ranks
    distance = "" if found.cohens_d is None else f"Cohen d {found.cohens_d:.2f}".replace("-", MINUS)
    a, b = (f"{mean:.3f} ± {sd:.2f}" for mean, sd in ((found.mean_a, found.sd_a), (found.mean_b, found.sd_b)))
    return [("mean score ± sd", a, b, distance)]


def _rank_rows(report: AbReport, metric: str) -> list[Row]:
    if report.ranks is None:
        return []
    found = report.ranks
    p = "< 0.001" if found.p_value < _TINY else f"{found.p_value:.3f}"
    rows: list[Row] = [
        ("Mann-Whitney, one look", "", "", f"p {p}"),
        ("pairs that B wins", "", "", f"{100 * found.win_ratio_b:.1f} %"),
    ]
    if found.cohens_d is not None:
        rows.append((f"Cohen d of {metric}", "", "", f"{found.cohens_d:.2f}".replace("-", MINUS)))
    return rows


def _value(value: float, report: AbReport, decimals: int) -> str:
    text = f"{value * 100:,.{max(decimals, 1)}f} %" if report.is_share else f"{value:,.{max(decimals, 1)}f}"
    return text.replace("-", MINUS)


def _days(days: int | None, sizes: AbSizes) -> str:
    if not sizes.baseline.entities_per_day:
        return "no traffic, so no duration can be computed"
    return "never, as things are" if days is None else f"{days:,} day{'s' * (days != 1)} at today's traffic"


def _today(sizes: AbSizes) -> str:
    share_b = sizes.baseline.share_b
    if not 0 < share_b < 1:
        return f"{100 * share_b:.0f} %: there is nothing to compare until both versions have a share"
    return f"{100 * share_b:.0f} %: {_days(sizes.days_today, sizes)}"


def _baseline_words(sizes: AbSizes, question: PlanQuestion) -> str:
    baseline = sizes.baseline
    if baseline.gap:
        return f"unknown, {baseline.gap}; the standard deviation is taken to be the mean, as seed 003 does"
    value = f"{100 * baseline.value:.3g} %" if baseline.is_share else f"{baseline.value:,.4g}"
    other = baseline.value + sizes.difference
    to = f"{100 * other:.3g} %" if baseline.is_share else f"{other:,.4g}"
    within = duration_words(question.choice.within_seconds)
    return f"{value} of {baseline.entities:,} entities within {within}; the change is to {to}"
