"""The Health page: the words of ``understudy doctor``, trouble first; and what of it pages of models tell."""

import pytest

from understudy.entrypoints.cli.shared.texts.findings_text import findings_verdict
from understudy.entrypoints.console.views.health import MAX_TOLD, Trouble, health_page, trouble_of
from understudy.entrypoints.console.views.tone import Tone
from understudy.registry.findings.finding import Finding, State
from understudy.registry.findings.servers import UNSEEN_REDIS

GOOD = Finding("postgres", State.GOOD, "18.1, 0.4 ms", "never said")
WARNING = Finding("monitor", State.WARNING, "none leads", "understudy serve monitor runs one.")
PROBLEM = Finding("partitions", State.PROBLEM, "December is missing", "understudy db partitions")


def test_trouble_comes_first_with_what_to_do_next():
    findings = [GOOD, WARNING, PROBLEM]
    page = health_page(findings)

    assert page.sentence == findings_verdict(findings).plain == "1 problem, 1 warning."
    assert [(row.name, row.tone, row.next_step) for row in page.troubled] == [
        ("partitions", Tone.BAD, "understudy db partitions"),
        ("monitor", Tone.WAIT, "understudy serve monitor runs one."),
    ]
    assert [(row.name, row.next_step) for row in page.good] == [("postgres", "")]
    assert page.tone is Tone.BAD


def test_without_trouble_all_is_well():
    assert health_page([GOOD])[:2] == ("All is well.", Tone.GOOD)


def test_what_this_process_cannot_see_is_neither_good_nor_trouble():
    page = health_page([GOOD, UNSEEN_REDIS])

    assert page.sentence == "All that is seen from here is well; not seen: redis."
    assert ([row.name for row in page.unknown], [row.name for row in page.good]) == (["redis"], ["postgres"])
    assert (page.unknown[0].tone, page.troubled) == (Tone.CALM, ())
    assert "not looked at" in page.unknown[0].what
    assert trouble_of([UNSEEN_REDIS], None, None).rows == ()


SILENT = Finding("monitor", State.WARNING, "none leads: pod-a was seen 300 s ago", "", is_pressing=True)
OF_SETUP = Finding("roles", State.WARNING, "missing: understudy_proxy")
OF_CHURN = Finding("churn 6 champion", State.PROBLEM, "has no model server", model_name="churn")
OF_FRAUD = Finding("fraud 1 champion", State.PROBLEM, "has no model server", model_name="fraud")
GUARD = Finding("guard churn", State.PROBLEM, "error rate 3.1x", model_name="churn")


def named(trouble: Trouble) -> list[tuple[str, str]]:
    return [(row.name, row.what) for row in trouble.rows]


def test_a_page_tells_what_is_wrong_now_with_problems_first_and_not_how_things_were_set_up():
    trouble = trouble_of([GOOD, OF_SETUP, SILENT, OF_CHURN], None, None)

    assert named(trouble) == [("churn 6 champion", "has no model server"), ("monitor", SILENT.what)]
    assert (trouble.tone, trouble.named, trouble.may_see_health) == (Tone.BAD, "churn 6 champion, monitor", True)
    assert trouble_of([SILENT], None, None).tone is Tone.WAIT


@pytest.mark.parametrize("found", [[], [GOOD], [OF_SETUP], [GUARD]], ids=["none", "good", "setup", "on its own page"])
def test_a_calm_page_has_nothing_of_it(found):
    trouble = trouble_of(found, None, "churn")

    assert (trouble.rows, trouble.tone, trouble.named) == ((), Tone.CALM, "")


def test_a_models_page_tells_nothing_of_other_models():
    assert [row.name for row in trouble_of([OF_CHURN, OF_FRAUD, SILENT], None, "churn").rows] == [
        "churn 6 champion",
        "monitor",
    ]


def test_who_may_see_some_models_gets_the_installations_trouble_without_its_words():
    trouble = trouble_of([OF_CHURN, OF_FRAUD, SILENT], {"churn"}, None)

    assert named(trouble) == [("churn 6 champion", "has no model server"), ("monitor", "")]
    assert not trouble.may_see_health


def test_more_than_a_page_has_place_for_are_counted():
    trouble = trouble_of([SILENT._replace(name=f"proxy pod-{place}") for place in range(MAX_TOLD + 2)], None, None)

    assert (len(trouble.rows), trouble.more) == (MAX_TOLD, 2)
