"""A proxy's control plane, as the command line and CI call it with a key: paths, bodies, and who is not there."""

from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import quote

from understudy.adapters.http.proxy_client import HttpProxy
from understudy.client.problems import ProxyAway
from understudy.errors import ControlPlaneAway

CALL_SECONDS = 60.0
"""Longest time of a call: the start of a rollout, with its warm-up, may take 45 s."""
REGISTRY_PATH = "/v1/registry/models"
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


def model_path(model_name: str, *parts: str) -> str:
    """Return the path of a model, or of what it has; names may hold any character."""
    return "/".join(["/v1/models", *(quote(part, safe="") for part in (model_name, *parts))])


def registry_path(model_name: str, *parts: str) -> str:
    """Return the path of a model in the registry, or of what it has there."""
    return "/".join([REGISTRY_PATH, *(quote(part, safe="") for part in (model_name, *parts))])


def said(reason: str | None, **fields: Any) -> dict[str, Any]:
    """Return a body with the reason where there is one."""
    return {**fields, **({} if not reason else {"reason": reason})}
