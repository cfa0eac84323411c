"""Pages of a list: at most so many at a time, and the cursor that the next page begins after."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from understudy.entrypoints.proxy.control.bodies import read_whole_number
from understudy.errors import QueryInvalid, Violation
from understudy.ports.registry.registry import AuditEntry, AuditPlace, AuditSubject

T = TypeVar("T")
MAX_PAGE = 1_000
"""Things of a page; also where a caller names no limit."""
NEXT = "next_cursor"
"""The member of an answer that the caller sends back as ``cursor``; ``null``: this was the last page."""


class PageAsked(NamedTuple):
    """Which page is asked for."""

    limit: int = MAX_PAGE
    cursor: str | None = None
    """What the page before said; ``None``: the first page."""

    @property
    def after_id(self) -> int:
        """The id that the page begins after.

        Raises:
            QueryInvalid: The cursor is of no list that is ordered by ids.
        """
        return 0 if self.cursor is None else _id_of(self.cursor)


def page_of(found: Sequence[T], place: Callable[[T], str], asked: PageAsked) -> tuple[list[T], str | None]:
    """Return one page of things that have a place each, in the order of their places, and the next cursor."""
    there = sorted((one for one in found if asked.cursor is None or place(one) > asked.cursor), key=place)
    page = there[: asked.limit]
    return page, place(page[-1]) if len(there) > asked.limit else None


def cut(found: Sequence[T], place: Callable[[T], str], limit: int) -> tuple[Sequence[T], str | None]:
    """Return a page and the next cursor, of one thing more than a page has, where there are more."""
    return (found[:limit], place(found[limit - 1])) if len(found) > limit else (found, None)


def audit_place(cursor: str | None) -> AuditPlace:
    """Return where a page of the audit ended.

    Raises:
        QueryInvalid: The cursor is none of the audit's.
    """
    policy, dot, other = (cursor or ".").partition(".")
    if not dot:
        raise _no_cursor()
    return AuditPlace(_id_of(policy) if policy else None, _id_of(other) if other else None)


def audit_cursor(shown: Sequence[AuditEntry], before: AuditPlace) -> str:
    """Return the cursor after these changes, which came after the place ``before``."""
    policies = [one.id for one in shown if one.subject is AuditSubject.POLICY]
    others = [one.id for one in shown if one.subject is not AuditSubject.POLICY]
    policy = policies[-1] if policies else before.policy
    other = others[-1] if others else before.other
    return f"{'' if policy is None else policy}.{'' if other is None else other}"


def _id_of(text: str) -> int:
    number = read_whole_number(text)
    if number is None:
        raise _no_cursor()
    return number


def _no_cursor() -> QueryInvalid:
    return QueryInvalid.naming(Violation("/query/cursor", f"expected what an answer said as {NEXT}"))
