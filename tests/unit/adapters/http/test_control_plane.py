"""A list over HTTP is read page by page, and never for ever."""

from collections.abc import Mapping
from typing import Any

import pytest

from understudy.adapters.http.control_plane import ControlPlaneClient
from understudy.client.problems import AnswerTooLong
from understudy.errors import ControlPlaneAway


def things(first: int, last: int) -> list[Mapping[str, Any]]:
    return [{"id": number} for number in range(first, last)]


class Paging(ControlPlaneClient):
    """A proxy with so many things, whose cursor is how many were shown; it keeps what it was asked."""

    def __init__(self, there: int, *, has_cursors: bool = True) -> None:
        super().__init__("http://127.0.0.1:1", None)
        self.asked: list[Mapping[str, str]] = []
        self._things, self._has_cursors = there, has_cursors

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        asked = dict(parameters or {})
        self.asked.append(asked)
        if not self._has_cursors:
            return {"keys": things(0, self._things)}
        first = int(asked.get("cursor", "0"))
        last = min(first + int(asked["limit"]), self._things)
        return {"keys": things(first, last), "next_cursor": str(last) if last < self._things else None}


class Wordy(Paging):
    """A proxy whose things are so long that a client takes this many of them in one answer."""

    def __init__(self, there: int, at_once: int) -> None:
        super().__init__(there)
        self._at_once = at_once

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        page = await super().get(path, parameters)
        if len(page["keys"]) > self._at_once:
            raise ControlPlaneAway("the answer is longer than it may be") from AnswerTooLong("it is longer")
        return page


class Endless(Paging):
    """A server whose every page names another."""

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        return {"keys": [], "next_cursor": "1"}


async def test_all_pages_are_read():
    async with Paging(2_500) as client:
        found = await client.pages("/v1/keys", "keys", {"model": "visits"})

    assert found == things(0, 2_500)
    assert [asked.get("cursor") for asked in client.asked] == [None, "1000", "2000"]
    assert {asked["model"] for asked in client.asked} == {"visits"}


@pytest.mark.parametrize(("there", "calls"), [(30, 1), (2_500, 2)])
async def test_no_page_is_read_that_was_not_asked_for(there, calls):
    async with Paging(there) as client:
        found = await client.pages("/v1/keys", "keys", at_most=1_200)

    assert (found, len(client.asked)) == (things(0, min(1_200, there)), calls)


async def test_a_proxy_of_the_release_before_answers_all_at_once():
    async with Paging(2_500, has_cursors=False) as client:
        assert await client.pages("/v1/keys", "keys") == things(0, 2_500)


async def test_a_page_that_is_too_long_is_asked_for_with_fewer_things():
    async with Wordy(900, at_once=300) as client:
        assert await client.pages("/v1/registry/versions", "keys") == things(0, 900)
    assert [asked["limit"] for asked in client.asked] == ["1000", "250", "250", "250", "250"]

    async with Wordy(2, at_once=0) as client:
        with pytest.raises(ControlPlaneAway, match="longer than it may be"):
            await client.pages("/v1/registry/versions", "keys")
    assert client.asked[-1]["limit"] == "1"


async def test_a_list_without_a_last_page_ends():
    async with Endless(0) as client:
        with pytest.raises(ControlPlaneAway, match="no last page"):
            await client.pages("/v1/keys", "keys")
