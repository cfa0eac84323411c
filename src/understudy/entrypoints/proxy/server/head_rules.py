"""Judges a request's head before anything is done with the request: strict HTTP, and the rules against web pages.

A page in the browser of an engineer can reach a proxy on that machine. Where callers need no key, nothing but these
rules keeps the page out: the host that it names (DNS rebinding), and the site that it comes from (CSRF).
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from understudy.entrypoints.proxy.messages.headers import CATEGORY_HEADER, DEADLINES, ENTITY_HEADER, HeaderFields
from understudy.errors import CrossSiteRequest, HeaderInvalid, HostUnknown, UnderstudyError

HEAD_PROBLEM = "understudy.head_problem"
"""Key of the error in the ASGI scope of a request whose head was refused."""
LOCAL_NAMES = ("localhost", "*.localhost")
"""Names that browsers and resolvers take for this machine whatever a name server says (RFC 6761 §6.3)."""
_VERSIONS = ("1.1", "1.0")
_SENT_ONCE = (b"authorization", ENTITY_HEADER, CATEGORY_HEADER, *sorted(DEADLINES))
"""Headers of which the proxy would read the last alone if there were two, and a gateway in front perhaps the first."""
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~!$&'()*+,;=%-]{0,255})(:[0-9]{0,5})?")
_MAX_HOST = 263
"""Bytes of a name, a colon and a port: longer ones are refused, and none is cached."""
RULED_HEADERS = frozenset((b"content-type", b"host", b"origin", b"sec-fetch-site", *_SENT_ONCE))
"""Headers that :class:`HeadRules` reads, of a request whose body's length is in ``content-length``."""
_JSON = b"application/json"
_OWN_SITES = frozenset((b"same-origin", b"none"))
"""Values of ``Sec-Fetch-Site`` of the proxy's own pages, and of what an engineer types into the browser."""
_SAFE_METHODS = frozenset((b"GET", b"HEAD", b"OPTIONS"))


class HeadRules(NamedTuple):
    """What the head of a request must be."""

    host_names: tuple[str, ...] | None = None
    """Names in lower case that callers may call the proxy by, beside any address; ``*`` stands for any characters.
    ``None``: any name."""
    refuses_pages: bool = False
    """Whether a body that a page can send unasked is refused when it comes from another site."""

    def problem(
        self, method: bytes, target: bytes, version: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> UnderstudyError | None:
        """Return why a request is refused; ``None`` when it is not.

        Args:
            method: In capitals.
            target: As it was sent.
            version: Of HTTP, such as ``1.1``.
            headers: Lower-case names and values.
        """
        fields = dict(headers)
        is_unusual = len(fields) != len(headers) or b"host" not in fields or b"transfer-encoding" in fields
        if is_unusual or version != "1.1" or b"#" in target:
            problem = _unusual_problem(target, version, headers)
            if problem is not None:
                return problem
        return self.problem_of_plain(method, fields)

    def problem_of_plain(self, method: bytes, fields: HeaderFields) -> UnderstudyError | None:
        """Do what :meth:`problem` does for HTTP/1.1 where no header that is judged came twice."""
        host = fields.get(b"host")
        if host is not None and (len(host) > _MAX_HOST or not _is_usable(host, self.host_names)):
            return _host_problem(host)
        if self.refuses_pages and method not in _SAFE_METHODS and fields.get(b"content-type") != _JSON:
            return _page_problem(fields, host or b"")
        return None


NO_RULES = HeadRules()
"""Any host name, and pages of any site; HTTP is strict all the same."""


def absolute_target_problem(target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> UnderstudyError | None:
    """Return why a request whose target is a whole URL is refused: the URL names another host than ``Host`` does.

    A server would have to ignore ``Host`` then, which was judged here, and which a proxy in front may have judged.

    Source:
        RFC 9112 §3.2.2 (absolute-form).
    """
    if target.startswith(b"/") or b"://" not in target:
        return None
    host = dict(headers).get(b"host")
    authority = re.split(rb"[/?]", target.partition(b"://")[2], maxsplit=1)[0]
    if host is None or authority.lower() == host.lower():
        return None
    return HeaderInvalid("host: expected the one that the request's target names")


def _unusual_problem(target: bytes, version: str, headers: Sequence[tuple[bytes, bytes]]) -> UnderstudyError | None:
    """Judge what few requests have.

    Source:
        RFC 9112 §3.2 (``Host``, fragments), §2.3 (versions), §6.1 (transfer codings).
    """
    if version not in _VERSIONS:
        return HeaderInvalid("the request line: expected HTTP/1.1")
    if b"#" in target:
        return HeaderInvalid("the request line: a target has no fragment")
    names = [name for name, _ in headers]
    hosts = names.count(b"host")
    if hosts > 1 or (not hosts and version == "1.1"):  # HTTP/1.0, which no browser speaks, needs none
        return HeaderInvalid("host: expected one")
    for name in _SENT_ONCE:
        if names.count(name) > 1:
            return HeaderInvalid(f"{name.decode()}: there are two")
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and (version != "1.1" or [coding.strip().lower() for coding in codings] != [b"chunked"]):
        return HeaderInvalid("transfer-encoding: expected chunked and no other coding, in HTTP/1.1")
    return None


@lru_cache(maxsize=1_024)
def _is_usable(host: bytes, names: tuple[str, ...] | None) -> bool:
    """Whether the value is a host, and one of those that callers may name."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    if names is None:
        return True
    name = found.group(1).decode().strip("[]").rstrip(".").lower()
    return _is_address(name) or any(fnmatchcase(name, known) for known in names)


def _is_address(name: str) -> bool:
    """Whether a name server has no say in it."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _host_problem(host: bytes) -> UnderstudyError:
    is_host = len(host) <= _MAX_HOST and _HOST.fullmatch(host)
    return HostUnknown() if is_host else HeaderInvalid("host: expected a name or an address, and perhaps a port")


def _page_problem(headers: HeaderFields, host: bytes) -> UnderstudyError | None:
    """Refuse what a page of another site can send without asking first (a request without CORS preflight).

    Source:
        Fetch Standard, "CORS-safelisted request-header" (content types); Fetch Metadata (``Sec-Fetch-Site``).
    """
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == _JSON:
        return None
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site", b"none")
    is_other_origin = origin is not None and origin.partition(b"://")[2].lower() != host.lower()
    return CrossSiteRequest() if is_other_origin or site.strip().lower() not in _OWN_SITES else None
