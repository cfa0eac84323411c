"""A small attack among the tests of the whole system; ``make fuzz`` is the large one."""

import pytest

from rigs.fuzz.run import attack, attack_files, table
from rigs.fuzz.world import a_world

EXAMPLES = 600
SEED = 20


@pytest.mark.long
def test_the_proxy_holds_against_hostile_input(short_path, database_url, valkey_url):
    with a_world(short_path, database_url, valkey_url, workers=1) as world:
        found = attack(world, 1, EXAMPLES, SEED, with_bursts=False)

    report = table([found], attack_files(100, SEED, short_path))
    # How fast it is meanwhile is asked where no other test runs.
    broken = [check for check in found.checks if not check.holds and not check.is_timed]
    assert broken == [], report
    assert [tally.findings for tally in found.tallies if tally.broken] == [], report
    assert sum(tally.sent for tally in found.tallies) > EXAMPLES * 0.9
    assert len({status for tally in found.tallies for status in tally.statuses}) > 5


def test_hostile_files_are_read_or_refused(tmp_path):
    found = attack_files(300, SEED, tmp_path)

    assert found.findings == {}
    assert found.sent > 200
