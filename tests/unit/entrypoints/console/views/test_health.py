"""The Health page: the words of ``understudy doctor``, trouble first, and no colour of what is well for it."""

from understudy.entrypoints.cli.shared.texts.findings_text import findings_verdict
from understudy.entrypoints.console.views.health import health_page
from understudy.entrypoints.console.views.tone import Tone
from understudy.lifecycle.server_findings import Finding, State

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
