"""Reads manifests and blobs of one OCI registry: the pull half of the distribution-spec, over HTTP.

A login goes to its registry alone, and to the token server that the registry names: never along a redirect. Neither
is a redirect's address repeated anywhere, since stores behind registries sign theirs.
"""

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from threading import Event
from typing import Final, NamedTuple, Self

import httpx2
import orjson

from understudy.adapters.artifacts.bounded_thread import go_on_unless
from understudy.adapters.artifacts.patience import FIRST_PAUSE_SECONDS, MAX_ATTEMPTS, Passing, Patience
from understudy.core.loading.oci_address import OciLogin, is_loopback
from understudy.errors import ArtifactForbidden, ArtifactUnreachable

REQUEST_SECONDS: Final = 30.0
"""Longest wait for a connection, and without a byte."""
MAX_REDIRECTS: Final = 5
_MAX_TOKEN_BYTES: Final = 262_144
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TIMED_OUT, _TOO_MANY, _BROKEN = 401, 403, 404, 408, 429, 500
_PARAMETER: Final = re.compile(r'([a-z]+)="([^"]*)"')


class OciAccess(NamedTuple):
    """What an operator has given for registries."""

    logins: Mapping[str, OciLogin]
    """By registry."""
    plain_http: frozenset[str]
    """Registries that are asked without TLS, besides those of this machine."""
    request_seconds: float = REQUEST_SECONDS
    first_pause_seconds: float = FIRST_PAUSE_SECONDS
    attempts: int = MAX_ATTEMPTS
    """Of each request; a caller that asks again by itself makes one."""

    def patience(self, given_up: Event) -> Patience:
        """Return the pauses of one fetch."""
        return Patience(given_up, self.first_pause_seconds, self.attempts)


class NotThere(ArtifactUnreachable):
    """The registry says that it has no such thing."""


class OciRegistry:
    """One registry, for one artifact; a context manager.

    Args:
        registry: ``host`` or ``host:port``.
        repository: In which the artifact lies.
        access: Logins, and which registries need no TLS.
        given_up: Set once the result is wanted no more.
    """

    def __init__(self, registry: str, repository: str, access: OciAccess, given_up: Event) -> None:
        # The client's libraries log addresses and headers, and an address that a registry redirects to may be signed.
        for name in ("httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._registry = registry
        self._repository = repository
        self._access = access
        self._given_up = given_up
        self._authorization: str | None = None
        scheme = "http" if self._is_plain(registry) else "https"
        try:
            self._base = httpx2.URL(f"{scheme}://{registry}/v2/{repository}/")
        except httpx2.InvalidURL:
            raise ArtifactUnreachable(f"{registry} is no host that a registry can have") from None
        self._client = httpx2.Client(
            timeout=access.request_seconds,
            headers={"accept-encoding": "identity"},
            trust_env=scheme == "https",  # no proxy sees a login that is not encrypted
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @contextmanager
    def opened(self, path: str, headers: Mapping[str, str], method: str = "GET") -> Iterator[httpx2.Response]:
        """Ask for a path below the repository, and give the good answer, whose body has not been read.

        Raises:
            Passing: It may be there soon.
            ArtifactForbidden, ArtifactUnreachable: It may not be read, or is not there.
        """
        try:
            response = self._answer(method, self._base.join(path), headers)
            try:
                self._judge(response, path)
                yield response
            finally:
                response.close()
        except httpx2.TimeoutException:
            raise Passing("the registry does not answer in time") from None
        except httpx2.ConnectError as problem:  # certificates and names, too, which only the system's words tell apart
            raise Passing(f"{self._registry} cannot be connected to: {str(problem)[:200]}") from None
        except httpx2.InvalidURL:
            raise ArtifactUnreachable(f"{self._registry} names an address that is none") from None
        except (httpx2.HTTPError, httpx2.StreamError) as problem:
            raise Passing(f"the registry's answer breaks off, or none comes ({type(problem).__name__})") from None

    def body(self, response: httpx2.Response, most_bytes: int) -> bytes:
        """Return a whole body, or so much of it that it is seen to be longer."""
        found = bytearray()
        for block in self.blocks(response):
            found += block
            if len(found) > most_bytes:
                break
        return bytes(found)

    def blocks(self, response: httpx2.Response) -> Iterator[bytes]:
        """Read a body as it comes."""
        for block in response.iter_raw():
            go_on_unless(self._given_up)
            yield block

    def _answer(self, method: str, url: httpx2.URL, headers: Mapping[str, str]) -> httpx2.Response:
        response = self._sent(method, url, headers)
        if response.status_code == _UNAUTHORIZED:
            challenges = response.headers.get_list("www-authenticate")
            response.close()
            self._authorization = self._authorized(challenges)
            response = self._sent(method, url, headers)
        for _ in range(MAX_REDIRECTS):
            if not response.has_redirect_location:
                return response
            target = url.join(response.headers["location"])
            response.close()
            if target.scheme not in (("https",) if url.scheme == "https" else ("http", "https")):
                raise ArtifactUnreachable(f"{self._registry} redirects to {target.host} without TLS, which is not done")
            url = target
            response = self._sent(method, url, headers)
        response.close()
        raise ArtifactUnreachable(f"{self._registry} redirects more than {MAX_REDIRECTS} times")

    def _sent(self, method: str, url: httpx2.URL, headers: Mapping[str, str]) -> httpx2.Response:
        go_on_unless(self._given_up)
        is_own = (url.scheme, url.netloc) == (self._base.scheme, self._base.netloc)
        own = {"authorization": self._authorization} if is_own and self._authorization is not None else {}
        return self._client.send(self._client.build_request(method, url, headers={**headers, **own}), stream=True)

    def _judge(self, response: httpx2.Response, path: str) -> None:
        status = response.status_code
        if status in (200, 206):
            return
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            has = "with the login that it is shown" if self._registry in self._access.logins else "without a login"
            raise ArtifactForbidden(f"{self._registry} does not let {self._repository} be read {has}: {status}")
        if status in (_TIMED_OUT, _TOO_MANY) or status >= _BROKEN:
            raise Passing(f"{self._registry} answers {status}", _retry_after_seconds(response))
        what = f"{self._registry} gives no {self._repository}/{path}"
        if status == _NOT_FOUND:
            raise NotThere(f"{what}: it has none")
        raise ArtifactUnreachable(f"{what}: it answers {status}")

    # -- who asks ------------------------------------------------------------------------------------------------------

    def _authorized(self, challenges: list[str]) -> str | None:
        """Return what to show a registry that has asked for something; ``None``: there is nothing to show.

        Source: RFC 6750 §3 and the token authentication of the distribution project.
        """
        login = self._access.logins.get(self._registry)
        for challenge in challenges:
            scheme, _, rest = challenge.partition(" ")
            if scheme.lower() == "bearer":
                return f"Bearer {self._token(dict(_PARAMETER.findall(rest)), login)}"
            if scheme.lower() == "basic" and login is not None:
                return login.basic
        return None

    def _token(self, asked: Mapping[str, str], login: OciLogin | None) -> str:
        realm = httpx2.URL(asked.get("realm", ""))
        if realm.scheme != "https" and not self._may_be_plain(realm):
            raise ArtifactForbidden(f"{self._registry} names a token server without TLS, which gets no login")
        query = {"scope": asked.get("scope") or f"repository:{self._repository}:pull"}
        if "service" in asked:
            query["service"] = asked["service"]
        url = realm.copy_merge_params(query)
        headers = {} if login is None else {"authorization": login.basic}
        response = self._client.send(self._client.build_request("GET", url, headers=headers), stream=True)
        try:
            if response.status_code in (_TOO_MANY, _TIMED_OUT) or response.status_code >= _BROKEN:
                words = f"the token server of {self._registry} answers {response.status_code}"
                raise Passing(words, _retry_after_seconds(response))
            if response.status_code == 200:  # noqa: PLR2004 - HTTP's own
                document = orjson.loads(self.body(response, _MAX_TOKEN_BYTES))
                token = document.get("token") or document.get("access_token")
                if isinstance(token, str) and token.isascii() and token.isprintable():
                    return token
        except (orjson.JSONDecodeError, AttributeError):
            pass
        finally:
            response.close()
        raise ArtifactForbidden(
            f"the token server of {self._registry} gives none for {self._repository}: it answers {response.status_code}"
        )

    def _may_be_plain(self, realm: httpx2.URL) -> bool:
        """Whether a token server without TLS is the registry itself, or one that the operator has named."""
        is_known = realm.netloc == self._base.netloc or realm.netloc.decode() in self._access.plain_http
        return realm.scheme == self._base.scheme == "http" and is_known

    def _is_plain(self, registry: str) -> bool:
        return is_loopback(registry) or registry in self._access.plain_http


def _retry_after_seconds(response: httpx2.Response) -> float | None:
    """Return ``Retry-After`` as seconds from now; ``None`` when there is none. Source: RFC 9110 §10.2.3."""
    value = response.headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value[:9])
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None
