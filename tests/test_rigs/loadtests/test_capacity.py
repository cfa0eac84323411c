"""The capacity page says what its figures come to, and the queues behind it are queues."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from loadtests.capacity import PAGE, Capacity, page_with, tables
from loadtests.demands import BOUNDS, Demand, breaks_at, cost_per_million, demand_of, shares_of
from loadtests.fleet import FIGURES, Inputs, day, pods_for, read_inputs
from loadtests.queues import Segment, Work, pod_shares, simulate
from understudy.adapters.telemetry.prometheus import COUNTERS, GAUGES, HISTOGRAMS
from understudy.monitoring.retention_job import PIECE_ROWS, PIECES
from understudy.serving.routing.instance_report import REPORT_SECONDS
from understudy.settings import Settings

ROOT = PAGE.parents[2]
EVEN = pod_shares(math.inf, 4)


def work(**changes: float) -> Work:
    return Work(serve=1e-3, variation=1.0, wake=0.0, ship=0.0, ship_every=0.2)._replace(**changes)


def steady(seconds: float, gone: float = 0.0) -> list[Segment]:
    return [Segment(seconds, 1, gone)]


@dataclass(frozen=True)
class Asked(Inputs):
    """Inputs that remember what they were asked for."""

    names: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> float:
        self.names.add(name)
        return super().__getitem__(name)

    def limit(self, name: str) -> float:
        self.names.add(name)
        return super().limit(name)


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked(read_inputs().document)


@pytest.fixture(scope="module")
def capacity(asked: Asked) -> Capacity:
    return Capacity(asked)


@pytest.fixture(scope="module")
def computed(capacity: Capacity) -> Mapping[str, str]:
    return tables(capacity)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_has_the_tables_that_its_figures_come_to(computed):
    page = PAGE.read_text(encoding="utf-8")

    assert page_with(page, computed) == page, "run `make capacity`"


def test_no_figure_is_there_for_nothing(computed, asked):
    groups = ("figures", "assumptions", "limits", "prices")

    assert computed
    assert {name for group in groups for name in asked.document[group]} == asked.names


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("postgres_disk", 25_000, 35_000), ("redis_core", 50_000, 70_000), ("postgres_wal", 180_000, 250_000)],
)
def test_things_break_where_the_page_s_advice_says(capacity, name, low, high):
    bound = next(bound for bound in BOUNDS if bound.name == name)

    assert low < breaks_at(capacity.inputs, bound, lambda peak: capacity.demand_at("predict", peak)) < high


def test_a_page_that_lacks_a_table_is_refused():
    with pytest.raises(ValueError, match="mend its markers"):
        page_with("<!-- capacity: pods -->\n<!-- end -->", {"pods": "", "cost": ""})


def test_the_page_names_only_metrics_that_there_are():
    lines = PAGE.read_text(encoding="utf-8").split("| what breaks |")[1].split("\n\n")[0].splitlines()[2:]

    named = {name for line in lines for name in re.findall(r"`([a-z]+_[a-z_]+)[`{]", line.split("|")[2])}

    assert len(lines) >= 9
    assert {name for name in named if not name.startswith("pg_")} <= {*COUNTERS, *GAUGES, *HISTOGRAMS}


# -- the figures -------------------------------------------------------------------------------------------------------


def test_every_figure_says_its_unit_and_where_it_is_from():
    document = json.loads(FIGURES.read_text(encoding="utf-8"))

    for group, told in (("figures", "where"), ("assumptions", "why"), ("limits", "why"), ("prices", "class")):
        for name, entry in document[group].items():
            assert set(entry) == {"value", "unit", told}, name
            assert entry["value"] > 0, name
            assert all(entry[key] for key in ("unit", told)), name


def test_the_files_that_figures_are_from_are_there():
    told = [entry["where"] for entry in read_inputs().document["figures"].values()]
    folders = (ROOT, ROOT / "src" / "understudy", ROOT / "loadtests" / "results")

    for path in {path for text in told for path in re.findall(r"`([\w/.-]+\.(?:py|json|md))`", text)}:
        assert any((folder / path).exists() for folder in folders), path
    for number in {int(number) for text in told for number in re.findall(r"ADR (\d+)", text)}:
        assert list((ROOT / "docs" / "adr").glob(f"{number:04}-*.md")), number


def test_an_assumption_that_is_a_setting_is_its_default():
    told = {entry["why"]: entry["value"] for entry in read_inputs().document["assumptions"].values()}
    named = {
        why[1:-1].removeprefix("UNDERSTUDY_").lower(): value for why, value in told.items() if "UNDERSTUDY_" in why
    }

    assert len(named) == 7
    for name, value in named.items():
        assert Settings.model_fields[name].default == value, name


def test_the_bounds_of_the_code_are_the_code_s():
    inputs = read_inputs()

    assert inputs.limit("windows_a_minute") == PIECE_ROWS * PIECES
    assert inputs["report_seconds"] == REPORT_SECONDS
    assert inputs.limit("monitor_tick") == Settings.model_fields["monitor_tick_seconds"].default / 2


# -- queues ------------------------------------------------------------------------------------------------------------


def test_a_queue_of_random_work_waits_as_long_as_theory_says():
    """M/M/1: the wait is longer than t with probability busy * exp(-(served - asked) * t), both a second."""
    rates = np.array([500.0, 800.0])

    found = simulate(work(), rates, steady(60), EVEN, seed=1)

    expected = np.log(rates / 1000 / 0.01) / (1000 - rates)
    # Waits of neighbours go together, so that a percentile of 190,000 calls is no surer than this.
    assert found.wait == pytest.approx(expected, rel=0.2)
    assert found.busy == pytest.approx(rates / 1000, rel=0.02)


def test_a_wake_up_is_paid_by_those_who_find_the_core_asleep():
    found = simulate(work(wake=1e-3), np.array([10.0, 400.0]), steady(60), EVEN, seed=1)

    assert found.busy[0] / 10 == pytest.approx(2e-3, rel=0.05)
    # A pod that is busy for a part b pays it in a part 1 - b: b = 0.4 (1 + (1 - b)).
    assert found.busy[1] == pytest.approx(0.8 / 1.4, rel=0.03)


def test_the_shipper_takes_its_time_for_every_row():
    found = simulate(work(ship=0.5e-3), np.array([400.0]), steady(60), EVEN, seed=1)

    assert found.busy[0] == pytest.approx(400 * 1.5e-3, rel=0.03)


def test_a_longer_batch_of_the_shipper_makes_more_wait():
    often, seldom = (
        simulate(work(ship=0.2e-3, ship_every=every), np.array([300.0]), steady(60), EVEN, seed=1)
        for every in (0.05, 0.4)
    )

    assert seldom.wait[0] > often.wait[0]


def test_calls_of_pods_that_are_gone_come_to_the_others():
    gone = simulate(work(), np.array([400.0]), steady(30, gone=1 / 3), EVEN, seed=1)
    more = simulate(work(), np.array([600.0]), steady(30), EVEN, seed=1)

    assert gone.wait == pytest.approx(more.wait)
    assert gone.busy == pytest.approx(more.busy)


def test_more_calls_a_pod_never_wait_less():
    rates = np.linspace(100, 950, 8)

    found = simulate(work(wake=1e-4, ship=1e-5), rates, steady(20), pod_shares(64, 6), seed=3)

    assert (np.diff(found.wait) >= 0).all()


def test_pods_with_few_connections_are_uneven_and_the_hottest_makes_the_wait():
    even, uneven = pod_shares(math.inf, 12), pod_shares(16, 12)

    waits = [simulate(work(), np.array([600.0]), steady(30), shares, seed=1).wait[0] for shares in (even, uneven)]

    assert uneven.mean() == pytest.approx(1)
    assert uneven.std() == pytest.approx(1 / 4, rel=0.1)
    assert waits[1] > 1.3 * waits[0]


# -- demands -----------------------------------------------------------------------------------------------------------


def test_the_day_has_its_peak_its_low_and_its_mean():
    hours = day(read_inputs())

    assert hours.max() == pytest.approx(1)
    assert hours.min() == pytest.approx(0.2)
    assert hours.mean() == pytest.approx(0.6)


@pytest.mark.parametrize(("peak", "pods"), [(1, 3), (300, 3), (301, 6), (1_000, 12)])
def test_pods_are_a_multiple_of_the_zones(peak, pods):
    assert pods_for(read_inputs(), peak, per_pod=100) == pods


def test_a_log_of_a_day_is_its_calls_times_a_row():
    inputs = read_inputs()

    found = demand_of(inputs, "predict", 1_000, 3)

    assert found.log_day == pytest.approx(600 * 86_400 * (266 + 88))
    assert found.log_kept == pytest.approx(30 * found.log_day)
    assert found.windows_a_minute == 3 * 6 * 4
    assert found.outage_seconds == pytest.approx(268_435_456 / (1_000 / 3 * 244))


def test_twice_the_load_on_twice_the_pods_is_twice_of_all_and_costs_no_more_a_call():
    inputs = read_inputs()

    one, two = (demand_of(inputs, "predict", 100_000 * times, 30 * times) for times in (1, 2))

    for name, share in shares_of(inputs, one).items():
        at_most = 1 if name == "node_network" else 2
        assert shares_of(inputs, two)[name] == pytest.approx(at_most * share), name
    assert sum(cost_per_million(inputs, two).values()) <= sum(cost_per_million(inputs, one).values())


def test_a_rank_call_is_not_cached_and_sends_its_treatments():
    found = demand_of(read_inputs(), "rank", 6_000, 51)

    assert found.redis_lookups == found.redis_core == found.redis_memory == 0
    assert found.pod_network > 6_000 / 51 * (177_000 + 72_000)


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_what_breaks_breaks_where_its_limit_is_used_up(bound):
    inputs = read_inputs()

    def demand_at(peak: float) -> Demand:
        return demand_of(inputs, "predict", peak, max(3, math.ceil(peak / 2_500)))

    found = breaks_at(inputs, bound, demand_at)

    if math.isinf(found):
        assert bound.name == "node_network"
    else:
        assert shares_of(inputs, demand_at(found))[bound.name] == pytest.approx(1, rel=0.01)


def test_two_values_of_one_name_are_refused():
    twice = {"a": {"value": 1}}

    with pytest.raises(ValueError, match="two groups"):
        Inputs({"figures": twice, "assumptions": twice, "prices": {}})["a"]


def test_the_figures_are_where_the_page_says():
    assert Path("loadtests/capacity.json") == FIGURES.relative_to(ROOT)
