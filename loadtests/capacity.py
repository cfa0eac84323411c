"""``make capacity``: from measured figures to pods, stores and money, written into docs/explanation/capacity.md.

Every figure, assumption, limit and price stands in ``loadtests/capacity.json`` with where it comes from. Pods come from
a simulation with a fixed seed (``loadtests/queues.py``, ``loadtests/fleet.py``), everything else from arithmetic
(``loadtests/demands.py``). The page's tables stand between markers; a test holds them to what this computes.

Exit status 0: the page is written; with ``--check`` 1 when it was out of step, and nothing is written.
"""

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from loadtests.demands import BOUNDS, Demand, breaks_at, cost_per_million, demand_of, shares_of
from loadtests.fleet import Fleet, Inputs, Scale, fleet_for, most_per_pod, pods_for, read_inputs
from loadtests.lake_demands import in_lake_alone

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "capacity.md"
_BLOCK = re.compile(r"<!-- capacity: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
_STEPS = ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"))


class Capacity:
    """Everything that the page shows, computed once."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    @cached_property
    def per_pod(self) -> Mapping[str, float]:
        """Calls a second that a pod may get at the peak, by kind."""
        return {kind: most_per_pod(self.inputs, kind) for kind in ("predict", "rank")}

    @cached_property
    def fleets(self) -> Sequence[tuple[Scale, Fleet]]:
        """The pods of each scale."""
        return [(scale, fleet_for(self.inputs, scale, self.per_pod[scale.kind])) for scale in self.inputs.scales]

    @cached_property
    def demands(self) -> Sequence[tuple[Scale, Demand]]:
        """What each scale asks for."""
        return [(scale, demand_of(self.inputs, scale.kind, scale.peak, fleet.pods)) for scale, fleet in self.fleets]

    def demand_at(self, kind: str, peak: float) -> Demand:
        """Return what any peak asks for."""
        return demand_of(self.inputs, kind, peak, pods_for(self.inputs, peak, self.per_pod[kind]))

    @cached_property
    def levers(self) -> Mapping[str, float]:
        """Calls a second for each pod, by what is different."""
        inputs, work = self.inputs, self.inputs.work("predict")
        shadowed = work._replace(serve=work.serve * inputs["shadow_ratio"], ship=2 * work.ship)
        faster = work._replace(ship_every=work.ship_every / 4)
        return {
            "as above": self.per_pod["predict"],
            "every call shadowed": most_per_pod(inputs, "predict", shadowed),
            "a balancer of requests in front (Envoy, nginx), not of connections": most_per_pod(
                inputs, "predict", connections=math.inf
            ),
            "`UNDERSTUDY_LOG_INTERVAL_SECONDS` 0.05": most_per_pod(inputs, "predict", faster),
            "`UNDERSTUDY_LOG_INTERVAL_SECONDS` 0.05 and such a balancer": most_per_pod(
                inputs, "predict", faster, math.inf
            ),
        }


def tables(capacity: Capacity) -> Mapping[str, str]:
    """Return every table of the page by its marker."""
    made: Mapping[str, Callable[[Capacity], str]] = {
        "answer": _answer,
        "pods": _pods,
        "stores": _stores,
        "volumes": _volumes,
        "cost": _cost,
        "limits": _limits,
        "breaks": _breaks,
        "levers": _levers,
        "lake": _lake,
        "figures": lambda one: _listed(one.inputs, "figures", "where"),
        "assumptions": lambda one: _listed(one.inputs, "assumptions", "why"),
        "bounds": lambda one: _listed(one.inputs, "limits", "why"),
        "prices": lambda one: _listed(one.inputs, "prices", "class"),
    }
    return {name: table(capacity) for name, table in made.items()}


def page_with(text: str, made: Mapping[str, str]) -> str:
    """Return the page with its tables as they should be.

    Raises:
        ValueError: The page lacks a table, or has one that there is not.
    """
    named = _BLOCK.findall(text)
    if sorted(named) != sorted(made):
        raise ValueError(f"{PAGE.name} has the tables {named}, and there are {sorted(made)}: mend its markers")
    return _BLOCK.sub(lambda found: f"<!-- capacity: {found[1]} -->\n{made[found[1]]}\n<!-- end -->", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or check it, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; leave with 1 when the page is out of step")
    asked = parser.parse_args(arguments)
    made = tables(Capacity(read_inputs()))
    before = PAGE.read_text(encoding="utf-8")
    after = page_with(before, made)
    print(made["answer"], made["breaks"], sep="\n\n")
    if asked.check:
        return int(after != before)
    PAGE.write_text(after, encoding="utf-8")
    return 0


# -- tables ------------------------------------------------------------------------------------------------------------


def _answer(capacity: Capacity) -> str:
    rows = []
    for (scale, fleet), (_, demand) in zip(capacity.fleets, capacity.demands, strict=True):
        shares = shares_of(capacity.inputs, demand)
        worst = max(shares, key=lambda name: shares[name])
        first = next(bound.text for bound in BOUNDS if bound.name == worst)
        rows.append(
            [
                f"**{scale.name}**",
                f"{fleet.pods}",
                "none"
                if demand.redis_lookups == 0
                else f"{_number(demand.redis_core)} core, {_size(demand.redis_memory)}",
                f"{_number(demand.postgres_cores)} cores, {_size(demand.postgres_wal)}/s",
                _size(demand.log_day),
                f"${_number(sum(cost_per_million(capacity.inputs, demand).values()))}",
                f"{first}: {_percent(shares[worst])}",
            ]
        )
    head = ["at the peak", "pods = cores", "Redis", "Postgres busy, WAL", "log a day", "per million", "nearest limit"]
    return _table(head, rows)


def _pods(capacity: Capacity) -> str:
    rows = [
        [
            scale.name,
            f"{fleet.pods}",
            _count(scale.peak / fleet.pods),
            *(_number(fared.wait_ms) for fared in fleet.outcomes.values()),
            f"{_percent(fleet.outcomes['all there'].busy)}, {_percent(fleet.zone_busy)}",
            _percent(fleet.outcomes["zone gone"].hottest),
            _percent(fleet.day_busy),
            f"{_count(fleet.broken)}; {_count(fleet.on_disk)}",
        ]
        for scale, fleet in capacity.fleets
    ]
    head = [
        "",
        "pods",
        "calls/s a pod",
        "p99 wait, ms: all there",
        "node killed",
        "redeploy",
        "zone gone",
        "busy: all there, zone gone",
        "hottest pod",
        "over the day",
        "a killed node: calls broken; rows on its disk",
    ]
    return _table(head, rows)


def _stores(capacity: Capacity) -> str:
    rows = [
        [
            scale.name,
            _rate(demand.redis_lookups),
            f"{_size(demand.redis_wire)}/s",
            _rate(demand.rows),
            _count(demand.transactions),
            f"{_number(demand.postgres_cores)} ({_number(demand.keeping_cores)})",
            _count(demand.postgres_connections),
            _duration(demand.outage_seconds),
            f"{_number(demand.policy_change * 1000)} ms",
            _number(demand.monitor_tick),
            f"{_number(demand.pod_network * 8 / 1e6)} Mbit/s",
        ]
        for scale, demand in capacity.demands
    ]
    head = [
        "",
        "Redis keys/s",
        "Redis wire",
        "rows/s",
        "commits/s",
        "Postgres cores (without rows)",
        "connections",
        "Postgres may be away",
        "a policy change",
        "monitor, s CPU a tick",
        "network of a pod",
    ]
    return _table(head, rows)


def _volumes(capacity: Capacity) -> str:
    rows = [
        [
            scale.name,
            _rate(demand.mean * 86_400),
            _size(demand.log_day),
            _size(demand.log_kept),
            _size(demand.archive_day),
            _size(demand.archive_day * 365),
            _count(demand.windows_a_minute),
            _size(demand.windows_kept),
        ]
        for scale, demand in capacity.demands
    ]
    head = [
        "",
        "rows a day",
        "log a day",
        "after 30 days",
        "Parquet a day",
        "a year",
        "windows a minute",
        "kept 35 days",
    ]
    return _table(head, rows)


def _cost(capacity: Capacity) -> str:
    costs = [(scale, cost_per_million(capacity.inputs, demand)) for scale, demand in capacity.demands]
    rows = [
        [scale.name, *(_number(value) for value in cost.values()), f"**{_number(sum(cost.values()))}**"]
        for scale, cost in costs
    ]
    return _table(["$ for a million calls", *costs[0][1], "together"], rows)


def _limits(capacity: Capacity) -> str:
    shares = [shares_of(capacity.inputs, demand) for _, demand in capacity.demands]
    rows = [
        [bound.text, *(_marked(share[bound.name]) for share in shares)]
        for bound in sorted(BOUNDS, key=lambda bound: -shares[-1][bound.name])
    ]
    return _table(["share of the limit", *(scale.name for scale, _ in capacity.demands)], rows)


def _breaks(capacity: Capacity) -> str:
    def at(kind: str, name: str) -> float:
        bound = next(bound for bound in BOUNDS if bound.name == name)
        return breaks_at(capacity.inputs, bound, lambda peak: capacity.demand_at(kind, peak))

    found = [(bound.text, at("predict", bound.name), at("rank", bound.name)) for bound in BOUNDS]
    rows = [[text, _rate(predict), _rate(rank)] for text, predict, rank in sorted(found, key=lambda one: one[1])]
    return _table(["the limit", "reached at predict/s", "at rank/s"], rows)


def _levers(capacity: Capacity) -> str:
    def pods(per_pod: float, peak: float) -> str:
        return f"{pods_for(capacity.inputs, peak, per_pod)}"

    rows = [[name, _count(rate), pods(rate, 1e5), pods(rate, 1e6)] for name, rate in capacity.levers.items()]
    return _table(["", "predict/s a pod at the peak", "pods at 100 k/s", "at 1 M/s"], rows)


def _lake(capacity: Capacity) -> str:
    rows = []
    for scale, demand in capacity.demands:
        if scale.kind == "predict":  # the lake's figures are of its rows
            lake = in_lake_alone(capacity.inputs, demand)
            shares = shares_of(capacity.inputs, lake.left)
            worst = max(shares, key=lambda name: shares[name])
            rows.append([
                scale.name,
                _count(lake.files_a_minute),
                f"{_size(lake.bytes_a_second)}/s",
                _size(lake.year_bytes),
                f"{_number(lake.left.postgres_cores)} ({_number(demand.postgres_cores)})",
                f"{_size(lake.left.postgres_wal)}/s ({_size(demand.postgres_wal)}/s)",
                f"{_size(lake.left.postgres_disk)} ({_size(demand.postgres_disk)})",
                _marked(lake.merging_cores),
                f"{next(bound.text for bound in BOUNDS if bound.name == worst)}: {_percent(shares[worst])}",
            ])  # fmt: skip
    head = [
        "the lake alone (the log in Postgres)",
        "files a minute",
        "their bytes",
        "a year",
        "Postgres cores",
        "its WAL",
        "its disk",
        "merging, of one core of the monitor",
        "nearest limit left",
    ]
    return _table(head, rows)


def _listed(inputs: Inputs, group: str, told: str) -> str:
    entries: Mapping[str, Mapping[str, Any]] = inputs.document[group]
    rows = [[f"`{name}`", f"{one['value']:,}", one["unit"], one[told]] for name, one in entries.items()]
    return _table(["name", "value", "unit", {"where": "measured", "why": "why", "class": "source class"}[told]], rows)


# -- cells -------------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float) -> str:
    """Return two significant digits: nothing here is known better."""
    if value == 0:
        return "0"
    places = 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    return f"{rounded:,.{max(0, 1 - math.floor(math.log10(abs(rounded))))}f}"


def _count(value: float) -> str:
    """Return the same of what comes in whole pieces."""
    return _number(value) if value >= 10 else f"{value:.0f}"


def _size(value: float) -> str:
    for step, name in _STEPS:
        if value >= step:
            return f"{_number(value / step)}{name}B"
    return f"{_number(value)} B"


def _rate(value: float) -> str:
    return "beyond 1 G" if math.isinf(value) else _size(value).removesuffix("B").strip()


def _percent(share: float) -> str:
    return f"{_number(share * 100)} %"


def _marked(share: float) -> str:
    return f"**{_percent(share)}**" if share > 1 else _percent(share)


def _duration(seconds: float) -> str:
    return f"{_number(seconds / 60)} min"


if __name__ == "__main__":
    sys.exit(main())
