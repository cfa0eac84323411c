import threading
from dataclasses import replace
from typing import Any

import pytest
from builders import a_version

from understudy.entrypoints.proxy.dialects.catalogue import MAX_INDEXED
from understudy.entrypoints.proxy.dialects.statistics import INLINE_VERSIONS, worded_statistics
from understudy.serving.call_statistics import CallStatistics


@pytest.mark.parametrize(("count", "is_beside"), [(INLINE_VERSIONS, False), (INLINE_VERSIONS + 1, True)])
async def test_statistics_of_many_versions_are_made_beside_the_event_loop(count, is_beside):
    one = a_version("1")
    versions = [replace(one, version=f"{number}") for number in range(count)]
    threads: list[threading.Thread] = []

    def word(document: dict[str, Any]) -> list[str]:
        threads.append(threading.current_thread())
        return [found["version"] for found in document["model_stats"]]

    found = await worded_statistics(CallStatistics(lambda: 0.0), versions, word)

    assert found == [version.version for version in versions]
    assert (threads[0] is not threading.main_thread()) is is_beside


async def test_no_more_versions_are_named_than_an_answer_has_room_for():
    endless = iter(lambda: a_version, None)

    found = await worded_statistics(
        CallStatistics(lambda: 0.0), (a for a in [a_version("1")] for _ in endless), lambda one: len(one["model_stats"])
    )

    assert found == MAX_INDEXED
