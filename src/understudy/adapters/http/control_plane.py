"""A proxy's control plane, as the command line and CI call it with a key: bodies, and who is not there."""

from collections.abc import Mapping
from typing import Any, Self

from understudy.adapters.http.proxy_client import HttpProxy
from understudy.client.problems import AnswerTooLong, ProxyAway
from understudy.errors import (
    ControlPlaneAway,
    DeadlineExceeded,
    Overloaded,
    PolicyNotLoaded,
    QuotaExceeded,
    TokenKeysAway,
)

CALL_SECONDS = 60.0
"""Longest time of a call: the start of a rollout, with its warm-up, may take 45 s."""
PAGE = 1_000
"""Things of a list that are asked for at once: as many as a proxy answers."""
_MAX_PAGES = 1_000
PASSING = (PolicyNotLoaded, TokenKeysAway, Overloaded, DeadlineExceeded, QuotaExceeded)
"""Refusals that another question a moment later does not get: who waits goes on."""
DRY_RUN = {"dry_run": "true"}


class ControlPlaneClient:
    """Calls the control plane of one proxy; use it as an asynchronous context manager.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        credential: ``<id>.<secret>``; ``None`` sends no key.
        timeout_seconds: Longest time of one call.
    """

    def __init__(self, url: str, credential: str | None, *, timeout_seconds: float = CALL_SECONDS) -> None:
        self.url = url
        self._proxy = HttpProxy(url, credential, timeout_seconds=timeout_seconds)

    async def __aenter__(self) -> Self:
        await self._proxy.__aenter__()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._proxy.__aexit__(*problem)

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """Return the document at a path.

        Raises:
            UnderstudyError: The leaf that the proxy's problem names.
            ControlPlaneAway: No server answers, or it is no proxy.
        """
        return await self.send("GET", path, parameters=parameters)

    async def pages(
        self, path: str, member: str, parameters: Mapping[str, str] | None = None, *, at_most: int | None = None
    ) -> list[Mapping[str, Any]]:
        """Return a list that a proxy answers in pages, whole or its first ``at_most``; raises as :meth:`get`.

        Raises:
            ControlPlaneAway: There is no last page: the server is no proxy.
        """
        found: list[Mapping[str, Any]] = []
        asked, size = dict(parameters or {}), PAGE
        for _ in range(_MAX_PAGES):
            size = size if at_most is None else min(size, at_most - len(found))
            try:
                page = await self.get(path, {**asked, "limit": str(size)})
            except ControlPlaneAway as problem:
                if size == 1 or not isinstance(problem.__cause__, AnswerTooLong):
                    raise
                size = max(1, size // 4)  # versions with long schemas and baselines
                continue
            found += page[member]
            cursor = page.get("next_cursor")  # a proxy of the release before has none: it answers all at once
            if cursor is None or (at_most is not None and len(found) >= at_most):
                return found[:at_most]
            asked["cursor"] = str(cursor)
        raise ControlPlaneAway(f"{self.url}: {path} has no last page among {_MAX_PAGES}")

    async def send(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Return the answer to a call with a body; raises as :meth:`get`."""
        try:
            answer = await self._proxy.send(method, path, document, parameters=parameters, headers=headers)
        except ProxyAway as problem:
            raise ControlPlaneAway(f"{self.url}: {problem}") from problem
        return answer.document


def said(reason: str | None, **fields: Any) -> dict[str, Any]:
    """Return a body with the reason where there is one."""
    return {**fields, **({} if not reason else {"reason": reason})}
