"""What a process that follows sources tells of them: how long each has been as it is, whenever it is asked."""

import asyncio
import re
from typing import Any, cast

from virtual_time import in_virtual_time

from understudy.bootstrap.registering.version_sources import OpenSource, SourceMetrics
from understudy.core.rollout.sources.version_source import SourceSpec, SourceState
from understudy.entrypoints.cli.source.following import Following, Telling, look_until_cancelled
from understudy.rollout.source_follower import SourceReport

SPEC = SourceSpec("oci", "visits", "oci://registry/models/visits:latest", "visits", "latest")


class World:
    """The page of one source, and the clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.telling = Telling(SourceMetrics([SPEC]), lambda: self.seconds)

    def look(self, state: SourceState, at: float) -> None:
        self.seconds = at
        self.telling.tell(SourceReport(SPEC.name, "oci", "visits", None, state, ""))

    def shown(self, metric: str, at: float) -> float:
        self.seconds = at
        page = self.telling.exposition()[0].decode()
        found = re.search(rf'^{metric}{{source="visits@latest"}} (\S+)$', page, re.MULTILINE)
        assert found is not None
        return float(found[1])


def test_the_page_says_how_long_a_registry_has_been_away_also_between_two_looks():
    world = World()
    world.look(SourceState.DONE, at=0)
    assert world.shown("source_away_seconds", at=50) == 0

    world.look(SourceState.AWAY, at=60)
    world.look(SourceState.AWAY, at=150)

    assert world.shown("source_away_seconds", at=159) == 99
    world.look(SourceState.DONE, at=160)
    assert world.shown("source_away_seconds", at=200) == 0


def test_a_version_that_waits_and_is_refused_then_has_been_late_since_the_first_of_these_looks():
    world = World()
    world.look(SourceState.WAITING, at=10)
    world.look(SourceState.REFUSED, at=70)

    assert world.shown("source_waiting_seconds", at=100) == 90
    world.look(SourceState.AWAY, at=130)
    assert world.shown("source_waiting_seconds", at=140) == 0
    assert world.shown("source_away_seconds", at=140) == 10


@in_virtual_time
async def test_looks_are_as_far_apart_as_was_asked_for_and_a_webhook_has_one_within_a_second():
    now = asyncio.get_running_loop().time
    looked, wake = [], asyncio.Event()

    async def look(one: OpenSource) -> SourceReport:
        await asyncio.sleep(0)
        looked.append(now())
        return SourceReport(one.spec.name, "oci", "visits", None, SourceState.DONE, "")

    sources: Any = [OpenSource(SPEC, cast(Any, None))]
    async with asyncio.TaskGroup() as group:
        following = Following(sources, 60.0, look)
        looking = group.create_task(look_until_cancelled(following, [wake], Telling(SourceMetrics([SPEC]), now)))
        await asyncio.sleep(130)
        wake.set()
        await asyncio.sleep(70)
        looking.cancel()

    assert looked == [0, 60, 120, 130, 190]
