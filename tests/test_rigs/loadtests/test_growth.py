"""How cost grows: the line that a large body is held to, and the load that makes bodies of each size."""

import pytest

from loadtests.grown import CHANGES_PER_MINUTE, FEATURES
from loadtests.growth import body_bytes, flat_target, linear_target, on_the_line, per_change_ms
from loadtests.rounds import Contender, CpuRound
from loadtests.wrk import Answered


def a_contender(name: str, server_us: float) -> Contender:
    return Contender(name, "", 0, rounds=[CpuRound(server_us, 0.0, Answered(1_000, 1.0, 0, 0))])


def costs(*server_us: float) -> list[Contender]:
    return [a_contender(f"{count} features", us) for count, us in zip(FEATURES, server_us, strict=True)]


def test_a_cost_that_grows_by_the_byte_is_on_the_line_and_one_that_grows_faster_is_short():
    by_the_byte = [50 + 0.01 * body_bytes(count) for count in FEATURES]

    assert on_the_line(*by_the_byte[:2]) == pytest.approx(by_the_byte[2])
    assert linear_target(costs(*by_the_byte)).verdict == "pass"
    assert linear_target(costs(*by_the_byte[:2], by_the_byte[2] * 1.11)).verdict == "short"


def test_a_cost_beside_more_models_may_be_a_twentieth_higher():
    assert flat_target(a_contender("5,000", 104.0), a_contender("1", 100.0)).verdict == "pass"
    assert flat_target(a_contender("5,000", 106.0), a_contender("1", 100.0)).verdict == "short"


def test_a_change_costs_what_a_second_of_load_needs_more_divided_by_the_changes_of_a_second():
    # 1,000 requests a second need 10 µs more each: 10 ms for a sixtieth of 200 changes.
    cost_ms = per_change_ms(a_contender("still", 100.0), a_contender("changing", 110.0))

    assert cost_ms == pytest.approx(10 / (CHANGES_PER_MINUTE / 60))
