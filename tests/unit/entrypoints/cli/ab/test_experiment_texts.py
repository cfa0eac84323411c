"""What ``ab`` and ``shadow`` say, at 80 and at 120 columns."""

import io
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from understudy.core.experiments.ab import AbState, Interval
from understudy.core.experiments.shadow_comparison import ShadowPairs, compare_shadow
from understudy.core.statistics.difference import Difference
from understudy.core.statistics.multiple_comparisons import Comparison
from understudy.core.statistics.quantiles import QuantileDifference
from understudy.core.statistics.rank_tests import RankComparison
from understudy.core.statistics.sample_ratio import ArmsRatio, SampleRatio
from understudy.core.statistics.sample_size import Forecast, reference_sample_size
from understudy.entrypoints.cli.ab.figures import decimals_for
from understudy.entrypoints.cli.ab.page import report_page
from understudy.entrypoints.cli.ab.text import choice_options, reference_texts, report_texts, sizes_texts
from understudy.entrypoints.cli.shadow.text import examples_texts, histogram_line
from understudy.entrypoints.cli.shadow.text import report_texts as shadow_texts
from understudy.entrypoints.cli.shared.times import time_axis_marks
from understudy.entrypoints.documents.experiments import ab_document
from understudy.experiments.ab_arms import ArmResult, Arms
from understudy.experiments.ab_intervals import IntervalAt
from understudy.experiments.ab_plan import AbSizes, Baseline, PlanQuestion
from understudy.experiments.ab_quantiles import Quantiles
from understudy.experiments.ab_report import AbReport, NoAnswer
from understudy.experiments.ab_scores import ScoreComparison
from understudy.experiments.attribution import ArmCounts, Period
from understudy.experiments.declared_tests import DeclaredTest, InterimAnalysis, MetricChoice, Plan, Wanted
from understudy.experiments.declaring import Found
from understudy.experiments.shadow_report import Disagreements, ShadowFinding
from understudy.ports.experiments.experiment_log import LoggedPair, Observed
from understudy.ports.experiments.experiment_store import ExperimentRecord

SINCE = datetime(2026, 10, 26, tzinfo=UTC).timestamp()
NOW = datetime(2026, 11, 20, 13, 2, tzinfo=UTC).timestamp()
WEEK = MetricChoice(604_800.0)
LABELS = {1: "v6", 2: "v7", 3: "v8"}
PLAN = Plan(Wanted(0.005, is_relative=False), WEEK, True, 0.005, 26_000, 5)
RANKS = RankComparison(0.321, 0.334, 0.18, 0.19, 0.083, 0.509, 0.07)


def label(version_id: int) -> str:
    return LABELS[version_id]


def screen(texts: list[Any], width: int) -> str:
    shown = io.StringIO()
    console = Console(file=shown, width=width, color_system=None, highlight=False, markup=False)
    for text in texts:
        console.print(text)
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())


def a_test(*looks: InterimAnalysis, ended_at: float | None = None) -> DeclaredTest:
    record = ExperimentRecord(1, "churn", "converted", 1, 2, SINCE, PLAN.to_json(), None, "dana", ended_at)
    return DeclaredTest(record, PLAN, looks)


def a_report(**changes: Any) -> AbReport:
    sentence = "Not yet decided. B is ahead by 0.12 points; 95 % interval −0.31 … +0.55 contains zero."  # noqa: RUF001  # as the judge says it
    report = AbReport(
        state=AbState.UNDECIDED,
        sentence=sentence,
        found=Found(1, 2, (), a_test(InterimAnalysis(NOW, 0.2, AbState.UNDECIDED, ""))),
        since=SINCE,
        until=NOW,
        wanted=PLAN.wanted,
        choice=WEEK,
        a=ArmCounts(44_100, 41_290, 15_731, 200_000, 200_000, 900),
        b=ArmCounts(4_912, 4_604, 1_745, 21_000, 20_832, 100),
        difference=Difference(41_290, 4_604, 41_290.0, 4_604.0, 0.041, 0.0422, 0.0012, 0.04, 0.04, 0.3, 0.91),
        interval=Interval(-0.0031, 0.0055, always_valid=True),
        fraction=0.32,
        ratio=SampleRatio(0.41, (0.3, 0.6), 0.41, 4_600.0, 4_912),
        split=[Period(SINCE, 0.05, (1,)), Period(SINCE + 1, 0.1, (2,))],
        forecast=Forecast(9, "At today's traffic B needs 9 more days to see a 0.5-point change (80 % power)."),
        ranks=RANKS,
        scores=ScoreComparison(RANKS, (0.0, 0.5, 1.0), (8, 2), (7, 3)),
    )
    return report._replace(**changes)


def said(report: AbReport, width: int = 80) -> str:
    return screen(report_texts(report, "churn", "converted", label), width)


def some_pairs(count: int = 2_000) -> ShadowPairs:
    rng = np.random.default_rng(5)
    champion = rng.beta(2, 5, count)
    shadow = np.clip(champion + rng.normal(0.01, 0.03, count), 0, 1)
    statuses = np.array(["ok"] * count, dtype="<U8")
    lost = statuses.copy()
    lost[:5], lost[5:6] = "timeout", "dropped"
    shadow[:6] = np.nan
    latency = rng.lognormal(-4.7, 0.4, count)
    return ShadowPairs(
        np.array([f"p{number}" for number in range(count)]),
        np.arange(count, dtype=np.int64) % 300,
        statuses,
        lost,
        latency,
        latency * 1.2,
        champion,
        shadow,
    )


def a_finding(count: int = 2_000, sampled_ratio: float = 0.1) -> ShadowFinding:
    report = compare_shadow(some_pairs(count))
    return ShadowFinding(1, 3, NOW - 86_400, NOW, 20_000, sampled_ratio, report)


def an_example(number: int) -> LoggedPair:
    prediction_id = f"019a9f3e-7b1c-7d2e-8f00-{number:012}"
    return LoggedPair(prediction_id, NOW, f"cust-{number}", 1, "ok", "ok", 9_000, 9_500, 0.31, 0.62 - number / 100)


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("width", [80, 120])
def test_a_report_looks_like_this_and_is_never_cut(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))

    shown = said(a_report(), width)

    assert max(map(len, shown.splitlines())) <= width
    table = shown[shown.index("                     ") :].partition("\n\n")[0]
    assert table == AB_TABLE
    assert " ".join(shown.partition(table)[0].split()) == " ".join(AB_HEAD.split())
    assert shown.endswith(
        "→ understudy ab report churn --metric converted --html report.html\n  draws the interval over time"
    )


AB_HEAD = """
churn  A v6 (champion) against B v7 (challenger)
converted, within 7 d of an entity's first call   26 Oct to 20 Nov

Not yet decided. B is ahead by 0.12 points; 95 % interval −0.31 … +0.55 contains zero.
1 of 5 looks taken; 32 % of 26,000 entities an arm are in.
At today's traffic B needs 9 more days to see a 0.5-point change (80 % power).
"""  # noqa: RUF001  # as it is shown
AB_TABLE = """\
                                   A v6          B v7                  B − A
────────────────────────────────────────────────────────────────────────────
entities of 2 steps              41,290         4,604  sample ratio p 0.41 ✔
too recent to count               2,810           308
with an outcome                  38.1 %        37.9 %
answered by their own           100.0 %        99.2 %
converted                        4.10 %        4.22 %           +0.12 points
  95 % at any time                                      −0.31 … +0.55 points
  spread left by the past                               91 % of the variance
mean score ± sd            0.321 ± 0.18  0.334 ± 0.19           Cohen d 0.07
Mann-Whitney, one look                                               p 0.083
pairs that B wins                                                     50.9 %
Cohen d of converted                                                    0.07"""  # noqa: RUF001  # as it is shown


@pytest.mark.parametrize("width", [80, 120])
def test_a_shadow_report_looks_like_this_and_is_never_cut(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))

    shown = screen(shadow_texts(a_finding(), "churn", 0.5, label), width)

    assert max(map(len, shown.splitlines())) <= width
    assert shown[shown.index("                     ") :] == SHADOW_TABLE
    assert shown.startswith("churn  shadow v8 against champion v6   last 1 d   2,000 pairs (a random 10 %)\n\nThe same")


SHADOW_TABLE = """\
                      champion v6   shadow v8                       difference
──────────────────────────────────────────────────────────────────────────────
answered                 100.00 %     99.70 %  0.25 % timeout · 0.05 % dropped
latency p50 / p99       9 / 23 ms  11 / 28 ms                    +20 % / +20 %
errors                     0.00 %      0.00 %                     +0.00 points
mean score                  0.284       0.294         +0.011 (+0.009 … +0.012)
same decision at 0.5                                     97.5 % (Cohen κ 0.89)
rank correlation                                                Spearman 0.981

  scores  0 ▅██▆▄▃▂▂▂▁ 1 champion
  scores  0 ▄██▇▅▄▂▂▂▁ 1 shadow      PSI 0.010   KS 0.037

→ understudy shadow examples churn --top 20 shows the largest disagreements"""


def test_a_shadow_report_leads_with_failures_and_shows_scores_that_are_no_probabilities_as_numbers():
    pairs = some_pairs(2_000)
    failing = np.where(np.arange(2_000) % 4 == 0, "error", "ok")
    report = compare_shadow(
        pairs._replace(
            shadow_statuses=failing,
            champion_scores=100 * pairs.champion_scores,
            shadow_scores=100 * pairs.shadow_scores,
        )
    )

    shown = screen(shadow_texts(a_finding()._replace(report=report), "churn", 0.5, label), 80)

    assert shown.splitlines()[2].startswith("The shadow failed 25.0 % of its calls. Of the others: the shadow's")
    assert "the shadow's score differs by +1.1 on average" in " ".join(shown.split())
    assert "same decision" not in shown
    assert "largest difference" in shown
    assert "answered 100.00 % 75.00 %" in " ".join(shown.split())
    assert "understudy log query" in shown


def some_arms() -> Arms:
    far = Difference(41_290, 4_604, 41_290.0, 4_604.0, 0.041, 0.0556, 0.0146, 0.04, 0.04)
    return Arms(
        version_ids=(1, 2, 3),
        ratio=ArmsRatio(0.41, (0.3,), 0.3, (44_100, 4_912, 4_870), (44_080.2, 4_901.0, 4_900.8)),
        results=[
            ArmResult(2, a_report().difference or far, Comparison(-0.0038, 0.0062, 0.8, 0.8)),
            ArmResult(3, far, Comparison(0.0096, 0.0196, 1e-9, 2e-9)),
        ],
        comparisons=2,
    )


@pytest.mark.parametrize("width", [80, 120])
def test_further_arms_are_shown_below_corrected_over_all_of_them(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))

    shown = said(a_report(arms=some_arms()), width)

    assert max(map(len, shown.splitlines())) <= width
    table = shown[shown.index("All 3 arms") :].partition("\nCorrected")[0]
    assert table == ARMS_TABLE
    assert (
        "Corrected over 2 comparisons (Holm) and for any number of looks; the figures of B above are those of one "
        "comparison." in " ".join(shown.split())
    )


ARMS_TABLE = """\
All 3 arms: sample ratio p 0.41 ✔
      new entities  as split    − A         95 % together  p (Holm)
───────────────────────────────────────────────────────────────────
A v6        44,100    44,080
B v7         4,912     4,901  +0.12  −0.38 … +0.62 points       0.8
  v8         4,870     4,901  +1.46  +0.96 … +1.96 points   < 0.001"""  # noqa: RUF001  # as it is shown


def test_arms_that_are_not_split_as_they_were_set_are_shown_without_differences():
    broken = some_arms()._replace(ratio=some_arms().ratio._replace(p_value=1e-5), results=[])

    shown = said(a_report(state=AbState.INVALID, sentence=broken.ratio.sentence, interval=None, arms=broken))

    assert "All 3 arms: sample ratio p < 0.001 ✖" in shown
    assert "44,100, 4,912 and 4,870 entities where the split gives" in " ".join(shown.split())
    assert "Holm" not in shown


def test_a_test_that_shares_alpha_says_how_sure_its_interval_is():
    shown = said(a_report(arms=some_arms(), alpha=0.025))

    assert "  97.5 % at any time" in shown
    assert "B's own test decides with its share of the 5 %, 2.5 %." in " ".join(shown.split())


def test_a_page_has_the_arms_too():
    document = report_page(a_report(arms=some_arms(), scores=None), "churn", "converted", label)

    assert "All 3 arms: sample ratio p 0.41" in document
    assert "4,870" in document


def test_the_document_of_arms_names_versions_and_both_p_values():
    document = ab_document(a_report(arms=some_arms()), "churn", "converted", label)["report"]["arms"]

    assert document["ratio"]["arms"][2] == {"version": "v8", "entities": 4_870, "expected": 4_900.8}
    (_, found) = document["results"]
    assert (found["version"], found["p_value"], found["adjusted_p_value"]) == ("v8", 1e-9, 2e-9)
    assert document["comparisons"] == 2


def test_with_two_arms_the_report_has_none_beside_them():
    shown = said(a_report())
    document = ab_document(a_report(), "churn", "converted", label)["report"]

    assert "Holm" not in shown
    assert (document["arms"], document["alpha"]) == (None, 0.05)


def some_quantiles(**changes: Any) -> Quantiles:
    differences = [
        QuantileDifference(0.5, 9.12, 9.43, 0.31, 0.1, 0.52),
        QuantileDifference(0.95, 31.0, 44.1, 13.1, 2.0, 24.9),
        QuantileDifference(0.99, 120.4, 118.2, -2.2, None, None),
    ]
    return Quantiles(Observed.LATENCY, 1_000, 460, differences)._replace(**changes)


@pytest.mark.parametrize("width", [80, 120])
def test_quantiles_that_were_asked_for_are_shown_below(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))

    shown = said(a_report(quantiles=some_quantiles()), width)

    assert max(map(len, shown.splitlines())) <= width
    assert shown[shown.index("Latency in ms") :].partition("\n\n")[0] == QUANTILES_TABLE


QUANTILES_TABLE = """\
Latency in ms, of 1,000 and 460 entities
     A v6  B v7  B − A     95 %, one look
─────────────────────────────────────────
p50  9.12  9.43  +0.31      +0.10 … +0.52
p95    31    44    +13           +2 … +25
p99   120   118     −2  too few beyond it"""  # noqa: RUF001  # as it is shown


def test_why_there_are_no_quantiles_is_said():
    without = some_quantiles(of=Observed.VALUE, differences=(), gap="an outcome that happens or does not has none")

    shown = said(a_report(quantiles=without))

    assert "Values of converted: no quantiles, because an outcome that happens" in shown


def test_a_page_and_the_document_have_the_quantiles_too():
    report = a_report(quantiles=some_quantiles())

    assert "Latency in ms, of 1,000" in report_page(report, "churn", "converted", label)
    document = ab_document(report, "churn", "converted", label)["report"]["quantiles"]
    assert document["of"] == "latency"
    assert document["differences"][0]["probability"] == 0.5


def test_a_plan_says_that_its_alpha_is_shared():
    baseline = Baseline("", 41_290, 0.041, 0.0393, True, 1_200.0, 0.1, 0.9)
    sizes = AbSizes(baseline, PLAN.wanted, 0.005, 29_900, 30_700, 5, 42, 117, None, (3, 4))

    shown = screen(sizes_texts(sizes, PlanQuestion("churn", "converted", PLAN.wanted, WEEK, 5, NOW)), 120)

    assert "alpha 5 %, two-sided, shared by 3 versions" in shown


def test_seed_003s_sizes_stand_beside_what_two_arms_need():
    assert screen(reference_texts(Wanted(0.05)), 80) == SEED


SEED = """\
Seed 003's figures are one-sample: they compare one group with a value that is
known exactly.
change  seed 003, one sample  its power with two arms  two arms need, each
──────────────────────────────────────────────────────────────────────────
1 %                   78,400                   50.8 %              156,979
2 %                   19,600                   50.8 %               39,246
5 %                    3,137                   50.8 %                6,281
10 %                     785                   50.8 %                1,571
15 %                     349                   50.8 %                  699
20 %                     197                   50.8 %                  394
"""


def test_a_plan_says_the_size_the_days_and_where_both_come_from():
    baseline = Baseline("", 41_290, 0.041, 0.0393, True, 1_200.0, 0.1, 0.9)
    sizes = AbSizes(baseline, PLAN.wanted, 0.005, 24_700, 25_300, 5, 42, 117, None)

    shown = screen(sizes_texts(sizes, PlanQuestion("churn", "converted", PLAN.wanted, WEEK, 5, NOW)), 80)

    assert "Each of two versions needs 24,700 entities, and with 5 looks 25,300." in shown
    assert "at today's weight       10 %: 117 days at today's traffic" in shown
    assert shown.endswith(
        "→ understudy ab report churn --metric converted --looks 5 --effect 0.5pt\n  declares the test"
    )


def test_a_plan_without_figures_says_what_it_takes_for_granted():
    baseline = Baseline("no metric was named", 0, 0.0, 0.0, True, 0.0, 0.0, 1.0)
    sizes = AbSizes(baseline, Wanted(0.05), 0.05, 6_281, 6_281, 1, None, None, reference_sample_size(0.05))

    shown = screen(sizes_texts(sizes, PlanQuestion("churn", None, Wanted(0.05), WEEK, 1, NOW)), 80)

    assert "Each of two versions needs 6,281 entities." in shown
    assert "no traffic, so no duration can be computed" in shown
    said_at_once = " ".join(shown.split())
    assert "0 %: there is nothing to compare until both versions have a share" in said_at_once
    assert "unknown, no metric was named" in said_at_once


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({"state": NoAnswer.NO_TRAFFIC, "a": None}, "→ understudy model show churn"),
        ({"state": NoAnswer.NO_OUTCOMES, "difference": None}, "→ understudy ab outcomes import"),
        ({"state": AbState.INVALID, "interval": None}, "→ understudy audit list churn"),
        ({"state": AbState.B_BETTER}, "→ understudy model set churn --champion v7 --challenger none"),
        ({"state": AbState.A_BETTER}, "→ understudy model set churn --weight 0"),
        ({"state": AbState.NO_DIFFERENCE}, "→ understudy model set churn --weight 0"),
    ],
)
def test_the_verdict_comes_first_and_the_next_command_last(changes, last):
    lines = said(a_report(sentence="This is the answer.", forecast=None, **changes)).splitlines()

    assert lines[3] == "This is the answer."
    assert lines[-1].startswith(last)


def test_without_a_declared_test_the_next_command_declares_one():
    report = a_report(found=Found(1, 2, (), None))

    assert "--metric converted --looks 5 --effect 0.5pt\n  declares a test" in said(report)


def test_that_command_counts_outcomes_as_the_report_does():
    own = MetricChoice(10.0, per_call=True, higher_is_better=False)
    report = a_report(found=Found(1, 2, (), None), choice=own)
    words = "--metric converted --looks 5 --effect 0.5pt --within 10s --per-call --lower-is-better"

    assert words in " ".join(said(report).split())
    assert [choice_options(MetricChoice(seconds)) for seconds in (604_800.0, 172_800.0, 5_400.0, 0.5)] == [
        "", " --within 2d", " --within 90m", " --within 0.5s",
    ]  # fmt: skip


def test_a_decided_test_says_when_it_was_decided():
    decided = a_test(
        InterimAnalysis(SINCE, 0.2, AbState.UNDECIDED, ""),
        InterimAnalysis(NOW, 0.4, AbState.B_BETTER, "B is better."),
        ended_at=NOW,
    )

    shown = said(a_report(state=AbState.B_BETTER, sentence="B is better.", found=Found(1, 2, (), decided)))

    assert "Decided at look 2 of 5, on 20 Nov; the figures are today's." in shown


def test_a_test_that_counts_calls_of_before_its_declaration_says_so_until_it_is_stopped():
    record = a_test().record
    late = DeclaredTest(record, PLAN._replace(declared_at=SINCE + 3 * 86_400), ())
    stopped = late._replace(record=record._replace(ended_at=NOW))
    words = "UTC on, 3 d before it was declared: if a report on them led to it, its alpha does not hold."

    assert words in " ".join(said(a_report(found=Found(1, 2, (), late))).split())
    assert "before it was declared" not in said(a_report(found=Found(1, 2, (), stopped)))
    assert "before it was declared" not in said(a_report())


def test_a_sample_is_said_to_be_one():
    assert "Computed from a random 12 % of the entities." in said(a_report(sampled_ratio=0.12))


def test_a_metric_of_amounts_is_told_in_its_own_unit():
    difference = Difference(41_290, 4_604, 41_290.0, 4_604.0, 1_204.5, 1_199.0, -5.5, 9e4, 9e4)
    shown = said(a_report(is_share=False, difference=difference, interval=Interval(-15.0, 4.0, always_valid=False)))

    assert "1,204.5" in shown
    assert "points" not in shown.partition("95 % at this look")[2]
    assert "−15.0 … +4.0" in shown  # noqa: RUF001  # as it is shown


@pytest.mark.parametrize(
    ("reach", "is_share", "decimals"), [(0.0043, True, 2), (0.043, True, 1), (9.5, False, 1), (95.0, False, 0)]
)
def test_a_difference_is_told_with_two_digits_of_its_uncertainty(reach, is_share, decimals):
    assert decimals_for(reach, is_share=is_share) == decimals


@pytest.mark.parametrize(("width", "has_id"), [(80, False), (120, True)])
def test_examples_leave_out_the_prediction_id_where_there_is_no_room(width, has_id, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))

    shown = screen(
        examples_texts(Disagreements(1, 3, SINCE, NOW, [an_example(1), an_example(2)]), "churn", label), width
    )

    assert shown.splitlines()[0] == "churn  shadow v8 differs from champion v6 by up to 0.300"
    assert ("019a9f3e-7b1c-7d2e-8f00-000000000001" in shown) is has_id
    assert "20 Nov 13:02:00  cust-1 " in shown


def test_without_disagreements_nothing_is_good_or_bad():
    assert screen(examples_texts(Disagreements(1, 3, SINCE, NOW, []), "churn", label), 80).startswith("No pairs")


def test_without_pairs_a_shadow_report_is_its_sentence_and_what_to_look_at():
    shown = screen(shadow_texts(a_finding(0, 1.0), "churn", 0.5, label), 80)

    assert "\n\nNo pairs: " in shown
    assert shown.endswith("→ understudy model show churn shows whether a shadow is set")


def test_bars_show_each_cell_against_the_fullest_and_a_cell_that_holds_something_is_seen():
    assert histogram_line([0, 1, 500, 1_000]) == "▁▂▅█"
    assert histogram_line([0, 0]) == "▁▁"


def test_a_page_has_the_verdict_both_charts_and_the_same_figures():
    report = a_report(
        timeline=[IntervalAt(SINCE + day * 86_400, 0.001, -0.02 / day, 0.03 / day) for day in (8, 16, 24)]
    )

    document = report_page(report, "churn", "<converted>", label)

    assert document.count("<svg") == 2
    assert "Not yet decided. B is ahead by 0.12 points" in document
    assert "&lt;converted&gt;" in document
    assert "<converted>" not in document
    assert "41,290" in document
    assert report_page(a_report(state=NoAnswer.NO_TRAFFIC, a=None, scores=None), "churn", "c", label).count("<svg") == 0


def test_moments_below_a_chart_are_days_or_times_of_the_day():
    assert [name for _, name in time_axis_marks(NOW - 4 * 86_400, NOW)] == [f"{day} Nov" for day in range(16, 21)]
    assert time_axis_marks(NOW - 3_600, NOW)[-1] == (NOW, "13:02")
