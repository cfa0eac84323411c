"""Which vulnerabilities a scan may leave out, and for how long."""

from datetime import date

import pytest

from tools.scan import ACCEPTED, LOCKS, ROOT, Accepted, command, read_accepted

TODAY = date(2026, 11, 23)
GOOD = '[[accepted]]\nid = "CVE-2026-12345"\nuntil = 2026-12-31\nwhy = "no process of ours runs it"\n'


def test_what_is_accepted_is_left_out_by_its_id():
    accepted = read_accepted(GOOD, TODAY)

    asked = command(accepted, ["--vulnerability-service", "osv"])

    assert accepted == [Accepted("CVE-2026-12345", date(2026, 12, 31), "no process of ours runs it")]
    assert asked[asked.index("--ignore-vuln") + 1] == "CVE-2026-12345"
    assert asked[-2:] == ["--vulnerability-service", "osv"]
    assert {flag for flag in asked if flag.startswith("requirements/")} == {f"requirements/{name}" for name in LOCKS}


@pytest.mark.parametrize(
    ("stands", "planted", "said"),
    [
        ("2026-12-31", "2026-11-22", "look at it again"),
        ("2026-12-31", "2036-12-31", "a day of the next 180"),
        ("until = 2026-12-31\n", "", "expected until"),
        ('why = "no process of ours runs it"\n', 'why = " "\n', "a reason"),
        ("CVE-2026-12345", "all", "got 'all'"),
    ],
)
def test_what_is_accepted_without_a_reason_or_for_ever_is_refused(stands, planted, said):
    with pytest.raises(ValueError, match=said):
        read_accepted(GOOD.replace(stands, planted), TODAY)


def test_the_lists_of_this_repository_can_be_read():
    assert all((ROOT / "requirements" / name).is_file() for name in LOCKS)
    assert len(read_accepted(ACCEPTED.read_text(encoding="utf-8"), TODAY)) == 0
