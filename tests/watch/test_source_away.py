"""A registry that is away for ten minutes of virtual time is one alert, by the committed rules and routes."""

import asyncio
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from virtual_time import run_in_virtual_time
from watch.programs import DEPLOY, RULES, program

from understudy.bootstrap.registering.version_sources import OpenSource, SourceMetrics
from understudy.core.rollout.sources.version_source import SourceSpec, SourceState
from understudy.entrypoints.cli.source.following import Following, Telling, look_until_cancelled
from understudy.rollout.source_follower import SourceReport

AWAY_SECONDS, EVERY_SECONDS, SCRAPE_SECONDS = 600, 60, 10
END_SECONDS = 1_200
SPECS = [
    SourceSpec("oci", "visits", f"oci://registry/models/visits:{tag}", "visits", tag) for tag in ("latest", "canary")
]
"""Two tags of one registry."""
HANG_SECONDS = 30.0
"""A look at a registry that hangs is given up (``LOOK_SECONDS`` of an image's tag)."""


async def followed(away_from: float, look_seconds: float) -> dict[str, list[float]]:
    """Follow through ten minutes in which the registry is away; return each source's gauge at each scrape."""
    now = asyncio.get_running_loop().time

    async def look(one: OpenSource) -> SourceReport:
        is_away = away_from <= now() < away_from + AWAY_SECONDS
        await asyncio.sleep(look_seconds if is_away else 0)
        state = SourceState.AWAY if is_away else SourceState.DONE
        return SourceReport(one.spec.name, "oci", "visits", None, state, "")

    sources = [OpenSource(spec, None) for spec in SPECS]  # type: ignore[arg-type]  # the look asks none
    telling = Telling(SourceMetrics(SPECS), now)
    following = Following(sources, EVERY_SECONDS, look)
    scraped: dict[str, list[float]] = {spec.name: [] for spec in SPECS}
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(look_until_cancelled(following, [asyncio.Event() for _ in SPECS], telling))
        while now() <= END_SECONDS:
            page = telling.exposition()[0].decode()
            for name, value in re.findall(r'^source_away_seconds{source="([^"]+)"} (\S+)$', page, re.MULTILINE):
                scraped[name].append(float(value))
            await asyncio.sleep(SCRAPE_SECONDS)
        looking.cancel()
    return scraped


def judged(folder: Path, scraped: dict[str, list[float]], groups_at: Sequence[tuple[float, int]]) -> str:
    """Return what promtool has against so many incidents at these times; an incident is what is told as one.

    Alerts of what is not there at all, such as proxies, have no source.
    """
    routes = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text())
    groups = f"count(group by ({', '.join(routes['route']['group_by'])}) (ALERTS{{alertstate='firing', source!=''}}))"
    expected = [
        {"expr": groups, "eval_time": f"{at:g}s", "exp_samples": [{"labels": "{}", "value": count}] if count else []}
        for at, count in groups_at
    ]
    series = [
        {"series": f'source_away_seconds{{source="{name}"}}', "values": " ".join(map(str, values))}
        for name, values in scraped.items()
    ]
    every = f"{SCRAPE_SECONDS}s"
    test = {"interval": every, "input_series": series, "promql_expr_test": expected}
    document = {"rule_files": [str(path) for path in RULES], "evaluation_interval": every, "tests": [test]}
    (folder / "away.yml").write_text(yaml.safe_dump(document))
    arguments = [program("promtool"), "test", "rules", str(folder / "away.yml")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=200)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("look_seconds", [0.0, HANG_SECONDS])
@pytest.mark.parametrize("away_from", [65, 119])
def test_a_registry_that_is_away_for_ten_minutes_is_one_incident_within_them_and_none_afterwards(
    tmp_path, away_from, look_seconds
):
    scraped = run_in_virtual_time(followed(away_from, look_seconds))

    assert len(scraped) == len(SPECS)
    groups_at = [(away_from, 0), (away_from + AWAY_SECONDS, 1), (END_SECONDS, 0)]
    assert judged(tmp_path, scraped, groups_at) == ""
