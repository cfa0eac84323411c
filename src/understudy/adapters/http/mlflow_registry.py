"""``VersionSource`` over MLflow's model registry: an alias of a registered model, by its REST API.

Source:
    MLflow 3, "REST API": ``GET api/2.0/mlflow/registered-models/alias`` and ``model-versions/get-download-uri``; a
    version's files come from the route of its own pages, ``model-versions/get-artifact``, which reads whatever store
    the server has. Tried with 3.17.2.
"""

import asyncio
import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import httpx2
import orjson

from understudy.adapters.files.mlflow_model import FILE, MAX_BYTES, described_in
from understudy.adapters.files.refusal import FileRefused
from understudy.core.rollout.sources.version_source import STEPS, Offered, SourceSpec
from understudy.core.schema.described import DescribedModel
from understudy.errors import SchemaNotTold, SourceAway

CALL_SECONDS: Final = 10.0
MAX_ANSWER_BYTES: Final = 1_048_576
_API: Final = "/api/2.0/mlflow"
_NO_SUCH: Final = frozenset({"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"})
"""What MLflow says where there is no model, or no alias of that name."""
_SAID_CHARACTERS: Final = 200
_MAX_NUMBER: Final = 40
MAX_ADDRESS: Final = 1_000
_MAX_SAID: Final = 255
"""Of a name or an id that it says of a version."""


class MlflowRegistry:
    """Follows one alias.

    Args:
        spec: Address, registered model and alias.
        login: A token, or ``user:password``; ``None`` sends none.
        timeout_seconds: Longest time of one call.
    """

    def __init__(self, spec: SourceSpec, login: str | None, *, timeout_seconds: float = CALL_SECONDS) -> None:
        self._model, self._alias = spec.registered_model, spec.alias
        self._url = spec.url.rstrip("/")
        self._seconds = timeout_seconds
        self._client = httpx2.AsyncClient(
            timeout=timeout_seconds,
            follow_redirects=False,  # the login would go where the answer says
            headers={**_authorized(login), "accept-encoding": "identity"},  # few bytes would become many
            trust_env=self._url.startswith("https:"),  # no proxy sees a login that is not encrypted
        )

    async def offered(self) -> Offered | None:
        """Return the version that the alias names."""
        named = {"name": self._model, "alias": self._alias}
        found = await self._document(f"{_API}/registered-models/alias", named, is_optional=True)
        if found is None:
            return None
        version = _member(found, "model_version", dict)
        number = _member(version, "version", str)
        if not number.isascii() or not number.isalnum() or len(number) > _MAX_NUMBER:
            raise SourceAway(f"{self._url}: the version of an alias is no number")
        note = {
            "registered_model": self._model,
            "version": number,
            "run_id": _said(version, "run_id"),
            "made_at": _moment(version.get("creation_timestamp")),
        }
        by = _said(version, "user_id")
        reason = f"mlflow: {self._model}@{self._alias} is version {number}"
        reason = f"{reason}, registered by {by}" if by else reason
        return Offered(number, await self._artifact(number), note, reason, _tag(version, STEPS))

    async def described(self, offered: Offered) -> DescribedModel:
        """Return what the signature in the version's ``MLmodel`` says."""
        asked = {"path": FILE, "name": self._model, "version": offered.number}
        status, body = await self._get("/model-versions/get-artifact", asked, MAX_BYTES)
        if status != HTTPStatus.OK:
            raise SourceAway(f"{self._url}: {FILE} of version {offered.number} was not sent: {_words(status, body)}")
        try:
            return described_in(body, f"version {offered.number} of {self._model}")
        except FileRefused as problem:
            raise SchemaNotTold(str(problem), hint=problem.next_step) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _artifact(self, number: str) -> str:
        asked = {"name": self._model, "version": number}
        found = await self._document(f"{_API}/model-versions/get-download-uri", asked)
        address = str(_member(found or {}, "artifact_uri", str))
        if len(address) > MAX_ADDRESS or not address.isprintable():
            raise SourceAway(f"{self._url}: the address of version {number} is none")
        return address

    async def _document(
        self, path: str, parameters: Mapping[str, str], *, is_optional: bool = False
    ) -> Mapping[str, Any] | None:
        """Return the answer to a call; ``None`` where it is optional and there is no such thing."""
        status, body = await self._get(path, parameters, MAX_ANSWER_BYTES)
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            document = None
        if status == HTTPStatus.OK and isinstance(document, dict):
            return document
        code = document.get("error_code") if isinstance(document, dict) else None
        if is_optional and code in _NO_SUCH:
            return None
        raise SourceAway(f"{self._url}: {_words(status, body)}")

    async def _get(self, path: str, parameters: Mapping[str, str], most: int) -> tuple[int, bytes]:
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._client.stream("GET", self._url + path, params=dict(parameters)) as response,
            ):
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise SourceAway(f"{self._url}: its answer is compressed, which was not asked for")
                body = bytearray()
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > most:
                        raise SourceAway(f"{self._url}: its answer has more than {most:,} bytes")
                return response.status_code, bytes(body)
        except TimeoutError:
            raise SourceAway(f"{self._url}: no answer within {self._seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as problem:
            # Of others the words may be the login's, such as those about a header that cannot be sent.
            words = str(problem)[:_SAID_CHARACTERS] if isinstance(problem, httpx2.ConnectError) else ""
            raise SourceAway(f"{self._url}: {words or type(problem).__name__}") from None


def _authorized(login: str | None) -> dict[str, str]:
    if login is None:
        return {}
    login = login.strip()  # the client's log would show a header that ends a line
    is_password = ":" in login
    return {"authorization": f"Basic {b64encode(login.encode()).decode()}" if is_password else f"Bearer {login}"}


def _member(document: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    value = document.get(name)
    if not isinstance(value, kind) or not value:
        raise SourceAway(f"its answer has no {name}: it is no MLflow server, or one that is not understood")
    return value


def _said(version: Mapping[str, Any], name: str) -> str | None:
    """Return what an answer says under a name, where that is a short text; anything else is none."""
    value = version.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_SAID and value.isprintable() else None


def _moment(milliseconds: Any) -> str | None:
    if not re.fullmatch("[0-9]{1,14}", str(milliseconds)):
        return None
    return datetime.fromtimestamp(int(milliseconds) / 1_000, UTC).isoformat()


def _tag(version: Mapping[str, Any], key: str) -> str | None:
    """Return a tag of a version; a list of anything else has none."""
    tags = version.get("tags")
    pairs = tags if isinstance(tags, list) else ()
    return next((_said(tag, "value") for tag in pairs if isinstance(tag, dict) and tag.get("key") == key), None)


def _words(status: int, body: bytes) -> str:
    """Return a refusal in words: of MLflow's own the message, else the status."""
    try:
        document = orjson.loads(body)
        said = str(document["message"])
    except (orjson.JSONDecodeError, LookupError, TypeError):
        said = ""
    line = "".join(filter(str.isprintable, " ".join(said.split())))[:_SAID_CHARACTERS]
    return f"{status} {line}".rstrip()
