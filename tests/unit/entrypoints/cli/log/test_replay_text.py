"""What ``log replay`` says, at 80 and at 120 columns, and what it tells programs."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from builders import a_version
from rich.console import Console

from understudy.core.experiments.logged_calls import Answer
from understudy.core.experiments.replay_comparison import ReplayedCall, compare_replay
from understudy.entrypoints.cli.log.replay_text import NOTHING_WRITTEN, replay_texts
from understudy.entrypoints.documents.experiments import replay_document
from understudy.entrypoints.documents.json_text import json_text
from understudy.experiments.log_replay import ReplayFinding, ReplayQuestion, ReplayWanted

NOW = datetime(2026, 11, 20, 13, 2, tzinfo=UTC).timestamp()
WANTED = ReplayWanted("churn", "7", None, NOW - 86_400, NOW, 200, 4, None, 60.0)
LABELS = {7: "7", 6: "6", 5: "5"}


def a_question(**changes: Any) -> ReplayQuestion:
    return ReplayQuestion(WANTED, a_version("7", "churn"), LABELS, {6: {}, 5: {}}, 5)._replace(**changes)


def a_call(number: int, then: Answer, **changes: Any) -> ReplayedCall:
    prediction_id = f"019a9f3e-7b1c-7d2e-8f00-{number:012}"
    return ReplayedCall(prediction_id, NOW - number, f"cust-{number}", 6, then, 0.012)._replace(**changes)


def scored(count: int = 200) -> list[ReplayedCall]:
    return [
        a_call(
            number,
            Answer(number / count),
            now=Answer(number / count * (0.9 if number % 4 == 3 else 1)),
            seconds=0.004 + number / 1e5,
        )
        for number in range(count)
    ]


def a_finding(calls: Sequence[ReplayedCall], unsent: int = 0, **changes: Any) -> ReplayFinding:
    question = a_question(**changes)
    return ReplayFinding(question, {6: len(calls) + unsent} if calls else {}, (), (), compare_replay(calls, unsent))


def screen(found: ReplayFinding, width: int = 80) -> str:
    shown = io.StringIO()
    console = Console(file=shown, width=width, color_system=None, highlight=False, markup=False)
    for text in replay_texts(found):
        console.print(text)
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_the_verdict_comes_first_then_its_evidence_and_the_next_command_last():
    assert screen(a_finding(scored())) == SCREEN


SCREEN = """\
churn  7 against what 6 answered   last 1 d   200 calls

The same answer as then in 150 of 200 calls (75.0 %), the same decision at 0.5
in 98.5 %; the scores are 0.0126 apart on average, 0.0995 at most.

                              then         7                difference
──────────────────────────────────────────────────────────────────────
answered                       200       200                  0 failed
latency p50 / p99       12 / 12 ms  5 / 6 ms              longest 6 ms
mean score                   0.497     0.485  −0.013 (−0.016 … −0.009)
apart p50 / p95 / most                             0 / 0.0796 / 0.0995
same decision at 0.5                                            98.5 %
rank correlation                                        Spearman 0.996

differs most (UTC)  entity    by   then     now  difference
───────────────────────────────────────────────────────────
20 Nov 12:58:41     cust-199  6   0.995  0.8955     −0.0995
20 Nov 12:58:45     cust-195  6   0.975  0.8775     −0.0975
20 Nov 12:58:49     cust-191  6   0.955  0.8595     −0.0955
20 Nov 12:58:53     cust-187  6   0.935  0.8415     −0.0935
20 Nov 12:58:57     cust-183  6   0.915  0.8235     −0.0915

Latency then: in the proxy, with all that it does; now: at the model server
alone, from here.
Nothing was written: a replay leaves no row in the log, and nothing in cache,
metrics and windows.
→ understudy plan churn 7 says how risky it is to roll it out, and how long that
takes"""  # noqa: RUF001  # as it is shown


@pytest.mark.parametrize(("width", "has_id"), [(80, False), (120, True)])
def test_it_is_never_cut_and_ids_are_shown_where_there_is_room(width, has_id, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))

    shown = screen(a_finding(scored()), width)

    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown.partition("differs most")[2]
    assert ("019a9f3e-7b1c-7d2e-8f00-000000000199" in shown) is has_id


def test_failures_and_what_cannot_be_compared_are_listed_with_their_reasons():
    calls = [
        *scored(10),
        a_call(20, Answer(0.5), code="E504", detail="500 ms were allowed; time ran out in stage 'upstream'"),
        a_call(21, Answer(0.5), reason="not in the log: income"),
    ]

    shown = screen(a_finding(calls, unsent=3))

    assert shown.splitlines()[2].startswith("1 of 15 calls failed (E504 1). Of the others: the same answer")
    assert "1  E504 500 ms were allowed; time ran out in stage 'upstream'" in shown
    assert "1  cannot be compared: not in the log: income" in shown
    assert "3 were not sent: the time was over." in " ".join(shown.split())
    assert shown.splitlines()[-1].startswith("→ understudy explain E504 ")


def test_classes_are_shown_by_their_names():
    calls = [
        a_call(1, Answer(0.9, '"pro"'), now=Answer(0.6, '"free"'), seconds=0.004),
        a_call(2, Answer(0.9, '"pro"'), now=Answer(0.8, '"pro"'), seconds=0.004),
        a_call(3, Answer(None, f'"{"long" * 20}"'), now=Answer(None, '["a","b"]'), seconds=0.004),
    ]

    shown = screen(a_finding(calls), 120)

    assert "another class" in shown
    assert "2 of 3 (66.7 %)" in shown
    assert "pro free class" in " ".join(shown.split())
    assert '["a","b"]' in shown
    assert "same decision" not in shown


LISTS = {"features": [{"name": "embedding", "dtype": "float32", "shape": [8]}, {"name": "iban", "private": True}]}


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({"sample_percent": 0}, "→ understudy model set churn --input-sample-percent 5 --reason '…' stores the inputs"),
        ({"sample_percent": 5}, "→ understudy log replay churn 7 --since 7d looks further back; inputs of 5 %"),
        (
            {"input_schemas": {6: LISTS}, "sample_percent": 0},
            "→ understudy shadow report churn compares versions on live",
        ),
        (
            {"input_schemas": {6: LISTS, 5: {}}, "sample_percent": 0},
            "→ understudy model set churn --input-sample-percent 5",
        ),
        ({"input_schemas": {}}, "→ understudy log replay churn 7 --from-version 7 replays its own calls"),
    ],
)
def test_without_inputs_it_says_how_to_have_them(changes, last):
    shown = screen(a_finding([], **changes))

    assert shown.splitlines()[0] == "churn  7   last 1 d   0 calls"
    assert "\n\nNothing was replayed: no call with stored inputs" in shown
    assert NOTHING_WRITTEN in " ".join(shown.split())
    assert last in " ".join(shown.split())


@pytest.mark.parametrize(
    ("calls", "unsent", "last"),
    [
        (scored(3), 0, "→ understudy plan churn 7 "),
        (scored(3), 2, "→ understudy log replay churn 7 --within 10m "),
        ([*scored(3), a_call(9, Answer(0.5), reason="too long")], 0, "→ understudy version show churn 7 "),
    ],
)
def test_the_next_command_is_about_what_is_in_the_way(calls, unsent, last):
    assert last in " ".join(screen(a_finding(calls, unsent)).split())


def test_what_was_asked_without_or_on_a_default_is_said():
    found = a_finding(scored(3))._replace(left_out=("plan",), defaulted=("basket", "visits"))

    shown = " ".join(screen(found).split())

    assert "Left out, because 7 does not take it (callers who send it get E101): plan." in shown
    assert "Not in these calls, so that the default of 7 stood in: basket, visits." in shown


def test_the_first_line_names_three_versions_at_most():
    found = a_finding(scored(4), labels={number: str(number) for number in range(1, 8)})
    found = found._replace(answered_by={1: 9, 2: 8, 3: 7, 4: 6, 5: 5})

    assert screen(found).startswith("churn  7 against what 1, 2, 3 and 2 more answered   last 1 d   4 calls\n")


def test_programs_get_every_figure_under_names_of_then_and_now():
    calls = [
        *scored(4),
        a_call(5, Answer(0.9, '"pro"'), now=Answer(0.6, '"free"'), seconds=0.004, version_id=5),
        a_call(6, Answer(0.5), code="E504", detail="late"),
        a_call(7, Answer(0.5), reason="too long"),
    ]

    document = orjson.loads(json_text(replay_document(a_finding(calls, unsent=2))))

    replay = document["replay"]
    assert document["schema"] == "understudy/v1"
    assert (replay["model"], replay["version"], replay["since"]) == ("churn", "7", "2026-11-19T13:02:00Z")
    assert replay["answered_by"] == {"6": 9}
    assert (replay["state"], replay["is_whole"], replay["calls"], replay["replayed"]) == ("compared", False, 9, 6)
    assert (replay["agreed"], replay["differed"], replay["unsent"]) == (3, 2, 2)
    assert replay["failed"] == [{"code": "E504", "calls": 1, "detail": "late"}]
    assert replay["incomparable"] == [{"reason": "too long", "calls": 1}]
    assert replay["classes"] == {"pairs": 1, "changed": 1, "changed_percent": 100}
    assert set(replay["distances"]) == {"mean", "p50", "p95", "largest"}
    assert replay["scores"]["pairs"] == 5
    assert replay["latency"]["longest_seconds"] == pytest.approx(0.00403)
    assert replay["examples"][0] == {
        "prediction_id": "019a9f3e-7b1c-7d2e-8f00-000000000005",
        "predicted_at": "2026-11-20T13:01:55Z",
        "entity_id": "cust-5",
        "answered_by": "5",
        "then": {"score": 0.9, "label": "pro"},
        "now": {"score": 0.6, "label": "free"},
        "difference": pytest.approx(-0.3),
    }
