"""The bars of single entities (statistics page), through the product's own tally and judgement.

Short by default; ``UNDERSTUDY_STATS=full`` takes the numbers of runs that the page names. ``pytest -s`` shows them.
"""

import os
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from understudy.core.canary.entities.entity_tally import UNIT_SECONDS, Before, EntityCalls, EntityTally
from understudy.core.canary.entities.worst_entities import failing_entities

pytestmark = pytest.mark.timeout(1_200)
IS_FULL = os.environ.get("UNDERSTUDY_STATS") == "full"
RUNS = 200 if IS_FULL else 30
ERROR_RATE = 0.005
UNIT_MINUTES = UNIT_SECONDS / 60
LAG_MINUTES = 1.5
"""Rows are in the log half a minute after their stretch, and are read once a minute."""


@dataclass(frozen=True)
class Tenants:
    """How tenants call a challenger; the fields after ``split_per_call`` are what is wrong."""

    number: int = 300
    requests_per_minute: float = 333.0
    percent: float = 10.0
    zipf: float = 0.0
    own_errors: float = 0.0
    """Spread (of the logarithm) of the tenants' own error levels, on both versions."""
    retries: int = 0
    split_per_call: bool = False
    dead: int = 0
    dead_on_both: bool = False
    incident_minutes: tuple[float, ...] = ()
    """When calls of the challenger fail for two minutes."""
    incident_error_rate: float = 0.3
    error_factor: float = 1.0


def named_at(world: Tenants, seed: int, minutes: float) -> dict[int, float]:
    """Return the tenants that are named until then, with the minute after the first challenger call of each."""
    random = np.random.default_rng([84, seed])
    volume = 1 / np.arange(1, world.number + 1) ** world.zipf
    per_minute = random.permutation(volume / volume.sum()) * world.requests_per_minute
    own = random.normal(0, world.own_errors, world.number)
    errors = np.minimum(1, ERROR_RATE * np.exp(own - world.own_errors**2 / 2))
    met = random.random(world.number) < world.percent / 100
    # A tenant without calls is no tenant that fails; the dead are of those that call as the usual one does at least.
    met[: world.dead] = True
    share = np.full(world.number, world.percent / 100) if world.split_per_call else met.astype(float)
    chance = np.minimum(1, errors * world.error_factor)
    chance[: world.dead] = 1.0
    # The newest 200,000 calls of the champion are looked at.
    before_calls = random.poisson(per_minute * min(360, 200_000 / world.requests_per_minute))
    past = np.where(np.arange(world.number) < (world.dead if world.dead_on_both else 0), 1.0, errors)
    before_failed = random.binomial(before_calls, past)
    before = {
        str(one): Before(*map(int, pair)) for one, pair in enumerate(zip(before_calls, before_failed, strict=True))
    }
    champion_ratio = float((errors * per_minute).sum() / per_minute.sum())
    tally = EntityTally()
    first: dict[int, float] = {}
    found: dict[int, float] = {}
    for unit in range(int(minutes / UNIT_MINUTES)):
        at = unit * UNIT_MINUTES
        calls = random.poisson(per_minute * share * UNIT_MINUTES)
        failed = random.binomial(calls, chance)
        for begins in world.incident_minutes:
            overlap = max(0.0, min(at + UNIT_MINUTES, begins + 2) - max(at, begins)) / UNIT_MINUTES
            failed += random.binomial(calls - failed, overlap * world.incident_error_rate)
        met_now = np.flatnonzero(calls)
        tally.add([a_stretch(int(one), int(calls[one]), int(failed[one]), world.retries) for one in met_now])
        for one in met_now:
            first.setdefault(int(one), at)
        for entity in failing_entities(tally.counts(before), champion_ratio):
            tenant = entity.counted.key
            found.setdefault(tenant, at + UNIT_MINUTES + LAG_MINUTES - first[tenant])
    return found


def a_stretch(tenant: int, calls: int, failed: int, retries: int) -> EntityCalls:
    again = failed * retries
    return EntityCalls(str(tenant), calls + again, failed + again, calls, failed, ((tenant, 1),))


def say(bar: str, figure: str) -> None:
    sys.stdout.write(f"\n{bar}: {figure}")


@pytest.mark.parametrize("volume", [333, 3_000])
@pytest.mark.parametrize(
    ("tenants", "percent", "within", "least"), [(300, 2, 15, 0.99), (300, 10, 15, 0.99), (3_000, 10, 60, 0.9)]
)
def test_a_dead_tenant_is_named_by_its_own_calls(tenants, percent, within, least, volume):
    world = Tenants(tenants, volume, percent, dead=1)
    minutes = within + 2 * UNIT_MINUTES if tenants == 300 or volume == 3_000 else within + 15

    found = [named_at(world, seed, minutes) for seed in range(RUNS)]

    after = [one[0] for one in found if one.get(0, np.inf) <= within]
    others = sum(bool(one.keys() - {0}) for one in found)
    middle = f", median {np.median(after):.1f} min" if after else ""
    say(f"one dead of {tenants}, {percent} %, {volume}/min", f"{len(after)} of {RUNS}{middle}; others named {others}")
    assert len(after) >= least * RUNS - (not IS_FULL)
    assert others <= 0.05 * RUNS


@pytest.mark.parametrize("volume", [333, 3_000])
@pytest.mark.parametrize(("tenants", "within", "least"), [(300, 15, 0.9), (3_000, 120, 0.9)])
def test_of_a_split_per_call_it_is_named_in_the_step_at_50_percent(tenants, within, least, volume):
    found = [named_at(Tenants(tenants, volume, 50, split_per_call=True, dead=1), seed, within) for seed in range(RUNS)]

    hits = sum(0 in one for one in found)
    others = sum(bool(one.keys() - {0}) for one in found)
    say(f"per call, one dead of {tenants}, {volume}/min, {within} min", f"{hits} of {RUNS}; others named {others}")
    assert hits >= least * RUNS
    assert others <= 0.05 * RUNS


EQUAL = {
    "equal": Tenants(percent=50),
    "heavy tenants": Tenants(percent=50, zipf=1.1),
    "heavy, own levels, retries": Tenants(percent=50, zipf=1.1, own_errors=1.0, retries=2),
    "3,000 with own levels": Tenants(3_000, percent=50, zipf=0.8, own_errors=1.0),
    "40 slices": Tenants(40, percent=50, split_per_call=True),
    "40 slices, heavy": Tenants(40, percent=50, zipf=1.1, split_per_call=True, retries=2),
    "two bursts": Tenants(percent=10, zipf=0.8, incident_minutes=(21.3, 70.5), retries=2),
    "two crashes of pods": Tenants(percent=2, incident_minutes=(21.3, 70.5), incident_error_rate=1.0),
    "three times the errors": Tenants(percent=50, zipf=1.1, error_factor=3.0),
    "dead on both versions": Tenants(percent=10, dead=1, dead_on_both=True),
}


@pytest.mark.parametrize("volume", [333, 3_000])
@pytest.mark.parametrize("name", EQUAL)
def test_equal_tenants_are_hardly_ever_named(name, volume):
    world = EQUAL[name]
    world = Tenants(**{**world.__dict__, "requests_per_minute": volume})

    false = sum(bool(named_at(world, seed, 180)) for seed in range(RUNS))

    say(f"{name}, {volume}/min", f"a name in {false} of {RUNS}")
    assert false <= 0.05 * RUNS
