"""How many connections a descriptor limit leaves for callers, and that the soft limit is raised."""

import resource
import subprocess
import sys

import pytest

from understudy.entrypoints.proxy.overload.descriptors import (
    MAX_CONNECTIONS,
    MAX_REFUSED,
    RESERVE,
    ConnectionLimits,
    connection_limits,
)


@pytest.mark.parametrize(
    ("descriptors", "connections"),
    [(1_024, 832), (384, 192), (128, 64), (2, 1), (1, 1), (20_000, 17_500), (1_048_576, MAX_CONNECTIONS)],
)
def test_callers_get_what_the_reserve_leaves_and_one_address_half_of_it(descriptors, connections):
    limits = connection_limits(descriptors, None, None)

    assert limits.connections == connections
    assert limits.per_address == max(1, connections // 2)
    assert limits.refused <= MAX_REFUSED
    assert descriptors < 2 * RESERVE or descriptors - limits.connections >= RESERVE


def test_what_the_operator_sets_takes_precedence_and_an_address_never_has_more_than_all():
    assert connection_limits(1_024, 5_000, None)[:2] == (5_000, 2_500)
    assert connection_limits(1_024, None, 700)[:2] == (832, 700)
    assert connection_limits(1_024, 10, 700) == ConnectionLimits(10, 10, 48)


def test_the_soft_limit_of_a_process_is_raised_to_its_hard_one():
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 300))\n"
        "from understudy.entrypoints.proxy.overload.descriptors import raise_descriptor_limit\n"
        "print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )

    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)

    assert said.stdout.split() == ["300", "300", "300"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 300  # of that process alone
