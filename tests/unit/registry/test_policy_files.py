"""A policy beside its file: what differs, and what others changed since it was applied."""

from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.core.routing.arms import BucketRange
from understudy.core.routing.policy_file import Place, PolicyFile
from understudy.errors import PolicyContradicted, PolicyFileInvalid, PolicyRefused
from understudy.ports.registry.registry import Actor, AppliedFile, AuditEntry, AuditSubject, PolicyRecord
from understudy.registry.findings.finding import State
from understudy.registry.findings.policies import judge_files
from understudy.registry.policy_files import (
    Comparison,
    Contradiction,
    contradiction_words,
    contradictions_of,
    propose,
    refuse_contradicted,
)

AT = datetime(2026, 11, 26, 12, 3, 11, tzinfo=UTC)
FIELDS = {"challenger_weight": 10, "arms": {"9": 5}, "fallback": True, "salt": None}
APPLIED = AppliedFile("churn", "policy/churn.yaml", FIELDS, 3, AT, "ci")
ARMS = (BucketRange("9", 93, 94), BucketRange("9", 97, 99))
POLICY = PolicyRecord("churn", "6", "7", 10, None, 100, True, None, {}, None, None, 3, AT, "ci", 1, 1, arms=ARMS)
BY = AuditEntry(9, "churn", 4, AT, "ada", "sql", None, "update", {}, {}, AuditSubject.POLICY, "churn", None)
FILE = PolicyFile("policy/churn.yaml", "churn", Place(1, 8), FIELDS, {"challenger_weight": Place(3, 20)})
CONTRADICTION = Contradiction("challenger_weight", 10, 25, BY)
SAID = "challenger_weight was 10 when policy/churn.yaml was applied, and is 25 now"


def compared(
    differences: dict[str, tuple[Any, Any]], *contradictions: Contradiction, rollout: int | None = None
) -> Comparison:
    return Comparison(FILE, POLICY, APPLIED, differences, contradictions, rollout)


def test_a_policy_as_its_file_says_is_not_contradicted_whatever_its_other_fields():
    assert contradictions_of(APPLIED, POLICY._replace(guard="off", shadow="8")) == []


def test_each_field_that_is_not_as_its_file_said_is_a_contradiction():
    changed = POLICY._replace(challenger_weight=25, arms=(), fallback=False)

    assert contradictions_of(APPLIED, changed) == [
        Contradiction("challenger_weight", 10, 25),
        Contradiction("arms", {"9": 5}, {}),
        Contradiction("fallback", True, False),
    ]


def test_what_is_no_field_of_a_policy_is_passed_over():
    later = APPLIED._replace(fields={**FIELDS, "of_a_later_release": 1})

    assert contradictions_of(later, POLICY) == []


def test_a_contradiction_is_told_with_who_changed_it_where_that_is_known():
    assert contradiction_words(CONTRADICTION, APPLIED) == f"{SAID}: ada via sql at 2026-11-26 12:03:11Z"
    assert contradiction_words(CONTRADICTION._replace(by=None), APPLIED) == SAID


def test_what_others_changed_is_refused_at_the_line_that_would_undo_it():
    with pytest.raises(PolicyContradicted) as refused:
        refuse_contradicted([compared({"challenger_weight": (25, 10)}, CONTRADICTION)])

    assert [str(problem) for problem in refused.value.problems] == [
        f"policy/churn.yaml:3:20: {SAID}: ada via sql at 2026-11-26 12:03:11Z"
    ]


def test_what_others_changed_and_the_file_now_says_is_not_refused():
    refuse_contradicted([compared({}, CONTRADICTION), compared({"guard": ("alert", "off")}, CONTRADICTION)])


def test_the_split_of_an_open_rollout_is_refused_at_its_line():
    with pytest.raises(PolicyContradicted) as refused:
        refuse_contradicted([compared({"challenger_weight": (2, 10)}, rollout=12)])

    (problem,) = refused.value.problems
    assert str(problem) == "policy/churn.yaml:3:20: rollout 12 of churn is open and moves this split itself"


class Refusing:
    """A registry that refuses every change of a policy."""

    async def set_policy(self, *_: Any, **__: Any) -> Any:
        raise PolicyRefused("challenger_weight is too much.", hint="Set it to 0.")


async def test_a_refusal_keeps_its_advice_and_is_told_at_the_field_that_it_is_about():
    one = compared({"challenger": (None, "7"), "challenger_weight": (25, 10)})

    with pytest.raises(PolicyFileInvalid) as refused:
        await propose(Refusing(), [one], Actor("ci", "apply"))  # type: ignore[arg-type]  # it does nothing else

    (problem,) = refused.value.problems
    assert str(problem) == "policy/churn.yaml:3:20: challenger_weight is too much. Set it to 0."


@pytest.mark.parametrize(
    ("applied", "is_equal"),
    [
        (APPLIED, True),
        (APPLIED._replace(path="other.yaml"), False),
        (APPLIED._replace(fields={}), False),
        (None, False),
    ],
)
def test_a_policy_is_as_its_file_says_once_it_was_applied_from_it(applied, is_equal):
    assert Comparison(FILE, POLICY, applied, {}).is_equal is is_equal


def test_doctor_is_told_what_is_not_as_the_file_says_and_the_rest_in_one_line():
    others = [CONTRADICTION, Contradiction("salt", None, "x")]

    good, warning = judge_files([(APPLIED, []), (APPLIED, others), (APPLIED, [])])

    assert (good.state, good.what) == (State.GOOD, "2 policies are as their files say")
    assert warning.state == State.WARNING
    assert warning.what == (
        "not as policy/churn.yaml says: challenger_weight 10 in the file, 25 now; salt null in the file, x now"
    )
    assert "--overwrite" in warning.next_step
