"""What ``drift`` says, at 80 and at 120 columns."""

import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from typing import Any

import numpy as np
import orjson
import pytest
from rich.console import Console
from traffic.drift import numeric_baseline

from understudy.core.drift.baseline import Baselines, CategoricalBaseline, NumericBaseline
from understudy.core.drift.evidence import Measure
from understudy.core.drift.report import Drift, DriftState, Reading, TextbookTests, no_baseline_drift, too_early_drift
from understudy.core.drift.subject_window import SubjectWindow, categorical_window, numeric_window
from understudy.core.drift.version_drift import DriftRule
from understudy.core.routing.policy import Role
from understudy.entrypoints.cli.drift.page import report_page
from understudy.entrypoints.cli.drift.text import (
    baseline_change_rows,
    baseline_change_table,
    baseline_words,
    history_bars,
    next_step,
    report_texts,
)
from understudy.entrypoints.cli.shared.rendering import names_words
from understudy.entrypoints.documents.drift import drift_document
from understudy.monitoring.drift_view import DriftVerdict, DriftView, SubjectView, VersionView

UNTIL = datetime(2026, 11, 20, 13, 0, tzinfo=UTC).timestamp()
HOUR, DAY = 3_600.0, 86_400.0
SINCE = UNTIL - 3 * DAY
HOURS = tuple(UNTIL - 14 * DAY + place * HOUR for place in range(336))
ROOM = np.random.default_rng(4).normal(0.32, 0.18, 4_000)
SCORES = numeric_baseline(ROOM, threshold=0.5)
COUNTRY = CategoricalBaseline({"US": 0.61, "DE": 0.35, "BR": 0.04}, rows=40_000, null_ratio=0.0)


def a_reading(measure: Measure, distance: float, limit: float) -> Reading:
    return Reading(measure, distance, limit, 80_000.0, 4_000.0)


def fine(subject: str = "prediction") -> Drift:
    shown = a_reading(Measure.WASSERSTEIN, 0.04, 0.1)
    words = f"{subject}: W1 0.04 (limit 0.10)."
    history = tuple(0.02 + 0.02 * (place % 3) for place in range(len(HOURS)))
    return Drift(subject, DriftState.OK, words, 90_000, None, shown, (shown,), "0.318", "0.321", "", history, HOURS)


def moved() -> Drift:
    shown = a_reading(Measure.PSI, 0.27, 0.2)
    words = "country: BR 4 % → 19 %, US 61 % → 48 %, PSI 0.27 (limit 0.20), evidence 80,000 (4,000 is enough)."
    history = tuple(0.3 if at >= SINCE else 0.01 for at in HOURS)
    drift = Drift("country", DriftState.DRIFT, words, 90_000, SINCE, shown, (shown,), "4 % BR", "19 % BR", "+BR")
    return replace(drift, history=history, history_seconds=HOURS, tests=TextbookTests(900.0, 0.0))


def windows(subject: str) -> list[SubjectWindow]:
    buckets = np.arange(400) % 64
    if subject == "country":
        return [categorical_window(SINCE, ["US", "US", "DE", "BR"] * 100, buckets)]
    return [numeric_window(SINCE, ROOM[:400], buckets)]


def a_version(version: str, *drifts: Drift, **changes: Any) -> VersionView:
    view = VersionView(
        version=version,
        role=Role.CHAMPION,
        is_active=True,
        summed_until=UNTIL,
        rule=DriftRule(),
        baselines=Baselines(SCORES, {"country": COUNTRY}),
        subjects=[SubjectView(drift, windows(drift.subject)) for drift in drifts],
    )
    return view._replace(**changes)


def a_view(*versions: VersionView, shared: Sequence[str] = ()) -> DriftView:
    return DriftView("churn", UNTIL, 14 * DAY, versions, shared, UNTIL + 18 * 60.0)


SHARED = "Same drift in v7 and v8: the input moved, not the model."
DRIFTING = a_view(
    a_version("7", fine(), moved(), too_early_drift("tenure", 120, ""), too_early_drift("age", 0, "")),
    a_version("8", no_baseline_drift("prediction"), moved(), role=Role.SHADOW, summed_until=UNTIL - 3 * HOUR),
    shared=[SHARED],
)


def screen(texts: Sequence[Any], width: int = 80) -> str:
    shown = io.StringIO()
    console = Console(file=shown, width=width, color_system=None, highlight=False, markup=False)
    for text in texts:
        console.print(text)
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


EXPECTED = """\
churn   14 d until 20 Nov 13:00 UTC

v7: country drifts; v8: country drifts.
Same drift in v7 and v8: the input moved, not the model.

v7  champion
subject     baseline      now  distance  limit  14 d            state
───────────────────────────────────────────────────────────────────────────────
prediction     0.318    0.321   W1 0.04   0.10  ▄▄▄▄▄▄▄▄▄▄▄▄▄▄  ✔
country       4 % BR  19 % BR  PSI 0.27   0.20  ▁▁▁▁▁▁▁▁▁▁▁███  ✖ since 17 Nov
tenure                                                          … too early:
                                                                120 of 200 rows
age                                                             … no values
  country: BR 4 % → 19 %, US 61 % → 48 %, PSI 0.27 (limit 0.20), evidence 80,000
  (4,000 is enough).
  Too early: 200 rows are needed, of entities in 16 of 64 groups.
  No values in these hours: age.

v8  shadow
subject     baseline      now  distance  limit  14 d            state
──────────────────────────────────────────────────────────────────────────────
prediction                                                      no baseline
country       4 % BR  19 % BR  PSI 0.27   0.20  ▁▁▁▁▁▁▁▁▁▁▁███  ✖ since 17 Nov
  prediction: no baseline to compare with; `understudy drift baseline set` makes
  one.
  country: BR 4 % → 19 %, US 61 % → 48 %, PSI 0.27 (limit 0.20), evidence 80,000
  (4,000 is enough).
  The monitor last summed up v8 until 20 Nov 10:00.

→ understudy drift report churn --html drift.html
  draws what moved, and when; if it is to stay so:
  understudy drift baseline set churn 7 --from training.csv"""


def test_a_report_looks_like_this_at_80_columns():
    assert screen(report_texts(DRIFTING)) == EXPECTED


def test_where_there_is_room_nothing_else_is_said(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    assert screen(report_texts(DRIFTING), 120).split() == EXPECTED.split()


def test_columns_are_dropped_where_there_is_no_room_and_nothing_is_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")

    shown = screen(report_texts(DRIFTING), 60)

    assert max(map(len, shown.splitlines())) <= 60
    assert "✖ since 17 Nov" in shown
    assert "█" not in shown
    assert "PSI 0.27" in shown


NO_HOUR = a_version("7", too_early_drift("prediction", 0, ""), summed_until=None)


@pytest.mark.parametrize(
    ("view", "verdict", "sentence", "command"),
    [
        (
            a_view(),
            DriftVerdict.NOT_ACTIVE,
            "No version of churn is active: there is nothing to judge.",
            "model show churn",
        ),
        (a_view(NO_HOUR), DriftVerdict.TOO_EARLY, "Too early to say anything of v7.", "serve monitor"),
        (
            a_view(a_version("6", fine()), a_version("7", no_baseline_drift("prediction"))),
            DriftVerdict.NONE,
            "No drift in v6; no baseline of v7.",
            "drift baseline set churn 7 --from training.csv",
        ),
        (
            a_view(a_version("6", fine()), a_version("7", fine())),
            DriftVerdict.NONE,
            "No drift in v6 and v7.",
            "drift report churn --html drift.html",
        ),
        (
            a_view(a_version("6", fine()), a_version("7", replace(moved(), subject="prediction"), moved())),
            DriftVerdict.DRIFT,
            "v7: prediction and country drift; no drift in v6.",
            "drift report churn --html drift.html",
        ),
        (
            a_view(a_version("7", no_baseline_drift("prediction"), fine("tenure"))),
            DriftVerdict.NONE,
            "No drift in v7.",
            "drift baseline set churn 7 --from training.csv",
        ),
    ],
)
def test_the_verdict_is_said_first_and_the_next_command_last(view, verdict, sentence, command):
    lines = screen(report_texts(view)).splitlines()

    assert view.verdict is verdict
    assert lines[2] == sentence
    assert next_step(view).command == f"understudy {command}"
    assert f"→ understudy {command}" in lines


FIRST_HOUR = """\
churn   14 d until 20 Nov 13:00 UTC

Too early to say anything of v7.
Whole hours are judged: the one that began at 13:00 UTC is summed up at 14:05,
in 47 m.
Inputs are not logged, so predictions alone can be judged: understudy model set
churn --input-sample-percent 5

v7  champion
  No call of it is in the hours that are summed up.

→ understudy drift report churn
  from 14:05 UTC on, when the next hour is summed up"""


def test_before_the_first_hour_is_over_it_says_when_it_will_be_and_shows_no_empty_table():
    early = a_version("7", too_early_drift("prediction", 0, ""), too_early_drift("tenure", 0, ""))

    assert screen(report_texts(a_view(early)._replace(input_sample_percent=0))) == FIRST_HOUR
    logged = screen(report_texts(a_view(early)._replace(input_sample_percent=5)))
    assert "Inputs are not logged" not in logged
    assert "summed up at 14:05" in logged


def test_a_drift_of_today_has_its_hour_and_the_seeds_rule_no_beginning():
    today = replace(moved(), since_seconds=UNTIL - 2 * HOUR)
    seed = replace(moved(), subject="prediction", since_seconds=None, history=(inf,), history_seconds=(UNTIL - HOUR,))

    shown = screen(report_texts(a_view(a_version("7", seed, today, rule=DriftRule(is_reference=True)))))

    assert "✖ since 11:00" in shown
    assert "✖ drifts" in shown
    assert "v7  champion  reference rule (seed)" in shown


def test_bars_reach_the_top_at_the_limit_and_a_stretch_without_hours_is_a_gap():
    drift = replace(fine(), history=(0.0, 0.05, 0.1), history_seconds=(0.0, DAY, 13 * DAY))

    assert history_bars(drift, 0.0, 14 * DAY) == "▁▅" + " " * 11 + "█"
    assert history_bars(replace(drift, history=(0.0, 0.2, inf)), 0.0, 14 * DAY)[-1] == "█"
    assert len(history_bars(drift, 0.0, 3 * HOUR)) == 3


def test_a_baseline_is_said_in_few_words():
    after = {"country": None, "tenure": SCORES, "drop": NumericBaseline(-3.14159, 0.0)}
    rows = baseline_change_rows({"country": COUNTRY}, after)

    assert baseline_words(COUNTRY) == "61 % US, 35 % DE, 1 more"
    assert rows[0] == ("country", "61 % US, 35 % DE, 1 more", "none", "", "")
    assert rows[1][1:4] == ("none", "0.321 ± 0.18", "4,000")
    assert rows[2][2:] == ("−3.14 ± 0", "", "")  # noqa: RUF001  # as a figure has it
    assert max(map(len, screen([baseline_change_table(rows)]).splitlines())) <= 80
    assert names_words(list("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"


def test_a_page_has_both_charts_of_what_drifts_and_the_textbook_tests():
    document = report_page(a_view(a_version("<7>", fine(), moved())))

    assert document.count("<svg") == 1  # of categories there is a table of shares
    assert "limit 0.20" in document
    assert '>BR</td><td data-name="baseline">4.0 %</td><td data-name="now">25.0 %</td>' in document
    assert "chi² p" in document
    assert "<7>" not in document


def test_a_page_without_a_drift_has_the_predictions_and_one_without_hours_none():
    quiet, empty = report_page(a_view(a_version("7", fine()))), report_page(a_view(NO_HOUR))

    assert quiet.count("<svg") == 2
    assert "No drift in v7." in quiet
    assert empty.count("<svg") == 0
    assert "The monitor has not summed up an hour of v7 yet." in empty


def test_the_document_has_moments_in_utc_and_every_figure():
    document = orjson.loads(orjson.dumps(drift_document(DRIFTING), option=orjson.OPT_UTC_Z))

    first, second = document["versions"]
    assert (document["since"], document["until"]) == ("2026-11-06T13:00:00Z", "2026-11-20T13:00:00Z")
    assert (document["next_hour_at"], document["input_sample_percent"]) == ("2026-11-20T14:05:00Z", None)
    assert (document["verdict"], document["shared"]) == ("drift", [SHARED])
    assert [subject["state"] for subject in first["subjects"]] == ["ok", "drift", "too_early", "too_early"]
    assert first["subjects"][1]["since"] == "2026-11-17T13:00:00Z"
    assert first["subjects"][1]["shown"]["measure"] == "psi"
    assert len(first["subjects"][1]["history"]) == 336
    assert second["subjects"][0]["shown"] is None
    assert second["summed_until"] == "2026-11-20T10:00:00Z"
