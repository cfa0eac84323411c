"""Why a call got its answer, in words."""

from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.entrypoints.cli.shared.texts.receipt_text import (
    checked_by,
    receipt_facts,
    receipt_sentence,
    searched_words,
)
from understudy.ports.prediction_log.receipts import Receipt
from understudy.ports.registry.registry import AuditEntry, AuditSubject
from understudy.registry.receipts import EntityCalls, Explained

AT = datetime(2026, 11, 20, 13, 0, 7, 112_000, tzinfo=UTC)


def a_receipt(**changes: Any) -> Receipt:
    plain = Receipt(
        "019a", AT.timestamp(), "churn", "6", "6", "u-1", "champion", "bucket", "ok", None, 0.8312, None, 9_040, 37, 4,
        None, False, (),
    )  # fmt: skip
    return plain._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "u-1 got score 0.8312 from 6 (champion) at 20 Nov 13:00:07.112 UTC."),
        ({"is_cache_hit": True, "label": '"stay"'}, 'u-1 got "stay", score 0.8312 from the cache of 6 (champion)'),
        (
            {"status": "fallback", "assigned": "7", "role": "champion", "error_code": "E504"},
            "6 answered u-1 at 20 Nov 13:00:07.112 UTC in the place of 7 (challenger), which failed (E504): score",
        ),
        (
            {"status": "timeout", "error_code": "E504", "score": None},
            "6 (champion) failed u-1 at 20 Nov 13:00:07.112 UTC (E504): no version answered.",
        ),
        ({"score": None}, "u-1 got an answer without a score from 6"),
        (
            {"role": "shadow", "version": "8"},
            "What u-1 got is not in the log; 8, the shadow, was asked beside a call of u-1 at 20 Nov 13:00:07.112 UTC",
        ),
    ],
)
def test_the_sentence_says_who_answered_and_what(changes, sentence):
    assert receipt_sentence(a_receipt(**changes)).startswith(sentence)


def test_the_facts_say_by_which_decision():
    before, after = {"challenger_weight": 5}, {"challenger_weight": 10}
    entry = AuditEntry(
        1, "churn", 4, AT, "oncall", "cli", "all passed", "update", before, after, AuditSubject.POLICY, "churn", None
    )
    shadow = a_receipt(version="8", role="shadow", score=0.79, error_code=None)
    plain = Explained(a_receipt(defaulted=("plan", "age")), [shadow], entry)

    told = dict(receipt_facts(plain, {}))
    named = dict(receipt_facts(Explained(a_receipt(reason="forced", bucket=None, generation=None), (), None), {}))
    routed = dict(receipt_facts(Explained(a_receipt(reason="category"), (), None), {}))

    assert told["decided by"] == "bucket 37 of 100, which is 6's as champion"
    made = "generation 4, made by oncall (cli) 20 Nov 13:00:07 UTC: challenger_weight 5 → 10 “all passed”"
    assert told["policy then"] == made
    unsaid = dict(receipt_facts(plain._replace(policy=entry._replace(reason=None)), {}))["policy then"]
    assert unsaid.endswith("challenger_weight 5 → 10 (no reason was given)")
    fallen_back = a_receipt(
        status="fallback", assigned="7", error_code="E502"
    )  # its role is of the version that answered
    assert dict(receipt_facts(Explained(fallen_back, (), None), {}))["decided by"] == (
        "bucket 37 of 100, which is 7's as challenger"
    )
    assert checked_by(fallen_back) == "understudy version check churn 7"
    assert checked_by(a_receipt(error_code="E509")) == "understudy version show churn 6"
    assert checked_by(a_receipt(error_code="E101")) == checked_by(a_receipt()) == ""
    assert told["defaults used"] == "plan, age"
    assert told["shadow beside it"] == "8 gave score 0.79, 9.0 ms in the proxy"
    assert named["decided by"] == "its caller, who named version 6 (its bucket is not logged)"
    assert named["policy then"] == "its generation is not logged"
    assert routed["decided by"] == "its category, which routes to 6 as champion (bucket 37 of 100)"
    assert routed["policy then"] == "generation 4; the audit has that change no more"


def test_a_search_says_how_far_it_came():
    whole = EntityCalls([a_receipt()], 0.0, 900.0, is_out_of_time=False)

    assert searched_words(whole) == "1 call found, looked back 15 m; older ones were not looked for."
    late = whole._replace(is_out_of_time=True)
    assert searched_words(late).endswith("the search ended by its time: older ones may be there.")
