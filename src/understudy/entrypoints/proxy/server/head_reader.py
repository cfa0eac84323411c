"""Head reader: reads a plain predict call that came whole, without the HTTP parser and its callback for each header.

It takes what needs no second thought and leaves all else to the parser, so it may be strict and has to be right: a
property test holds both side by side.
"""

import re

from understudy.core.value import Value
from understudy.entrypoints.proxy.messages.headers import DIALECT_HEADERS, NAMES_REQUEST, OPTION_HEADERS
from understudy.entrypoints.proxy.server.head_rules import RULED_HEADERS

MAX_HEAD = 8_192
"""Bytes of a head that is read here."""
_HEAD = re.compile(
    rb"POST (/v1/models/[\w.~-]{1,200}[/:]predict|/v2/models/[\w.~-]{1,200}/infer) HTTP/1\.1\r\n"
    # Possessive, so that a head that fails near its end is not tried in other ways.
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t\x20-\x7e]*+\r\n)++\r\n",
    re.ASCII,
)
_FRAMING = frozenset((b"connection", b"expect", b"proxy-connection", b"transfer-encoding", b"upgrade"))
"""Headers that say how a message ends or what becomes of its connection: the parser knows what they mean."""
_READ = OPTION_HEADERS | NAMES_REQUEST | RULED_HEADERS | _FRAMING
_FIELD, _DIALECTS_FIELD = (
    re.compile(rb"\n((?i:%b)):[\t ]*+([^\r]*+)" % b"|".join(sorted(names)))
    for names in (_READ, _READ | DIALECT_HEADERS)
)
_MAX_DIGITS = 9


class WholeRequest(Value, frozen=True, gc=False):
    """A request of which all bytes are there, and nothing behind them.

    ``fields`` has the headers that the proxy reads of a call to this target, by their names in lower case.
    """

    target: bytes
    fields: dict[bytes, bytes]
    body: bytes


def read_whole(data: bytes) -> WholeRequest | None:
    """Read the bytes of one plain predict call, also of a dialect, or return ``None``: they are for the HTTP parser.

    Args:
        data: What one read brought, on a connection that waits for a request.

    Source:
        RFC 9112 §3 (request line), §5 (field lines), §6 (length of the body); RFC 9110 §5.6.2 (tokens).
    """
    head = _HEAD.match(data, 0, MAX_HEAD)
    if head is None:
        return None
    body_at = head.end()
    found = (_FIELD if head[1].endswith(b"/predict") else _DIALECTS_FIELD).findall(data, 0, body_at)
    fields = {}
    for name, value in found:  # no comprehension: as a function of its own it takes a fifth longer
        fields[name.lower()] = value
    if len(fields) != len(found) or not _FRAMING.isdisjoint(fields):
        return None
    length = fields.get(b"content-length", b"")
    if not length.isdigit() or len(length) > _MAX_DIGITS or int(length) != len(data) - body_at:
        return None
    return WholeRequest(head[1], fields, data[body_at:])
