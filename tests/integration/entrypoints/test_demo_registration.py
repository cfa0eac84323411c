"""What the demo registers: at a server of one's own, or for agents to load."""

from pathlib import Path

import pytest

from understudy.entrypoints.demo import registration
from understudy.entrypoints.demo.artifacts import write_artifacts
from understudy.entrypoints.demo.refusal import DemoRefused
from understudy.entrypoints.demo.topology import GROUP, VERSIONS


async def test_versions_are_registered_for_agents_to_load_for_good_and_a_second_start_finds_them(
    database_url: str, tmp_path: Path
):
    artifacts = write_artifacts(tmp_path)

    for _ in range(2):
        await registration.register_artifacts(database_url, artifacts)

    async with registration.open_session(database_url) as session:
        found = [await session.loading.show(one.model_name, str(one.version)) for one in VERSIONS]
        missing = await session.loading.list_missing()
    assert [(one.group_name, one.is_kept) for one in found if one] == [(GROUP, True)] * len(VERSIONS)
    assert len(missing) == len(VERSIONS)


async def test_versions_of_another_demo_are_not_taken_for_these(database_url: str, tmp_path: Path):
    await registration.register_at(database_url, "127.0.0.1:8500")
    artifacts = write_artifacts(tmp_path)

    with pytest.raises(DemoRefused, match="another version 1 of visits than this demo brings") as refused:
        await registration.register_artifacts(database_url, artifacts)

    assert "--reset" in refused.value.next_step


async def test_what_agents_do_not_load_ends_the_start_with_what_is_known_of_it(database_url: str, tmp_path: Path):
    await registration.register_artifacts(database_url, write_artifacts(tmp_path))

    with pytest.raises(DemoRefused, match=r"agents have not loaded visits 1, .* within 0 s: nothing said"):
        await registration.first_policies(database_url, ["127.0.0.1:8500"], seconds=0.0)


async def test_registering_at_another_server_moves_every_version_there(database_url: str):
    await registration.register_at(database_url, "127.0.0.1:8500")

    standing = await registration.register_at(database_url, "127.0.0.1:8600")

    async with registration.open_session(database_url) as session:
        endpoints = {one.endpoints for one in await session.registry.list_versions("visits")}
    assert endpoints == {("127.0.0.1:8600",)}
    assert (standing.champion, standing.candidates) == ("1", frozenset({"2", "3"}))
