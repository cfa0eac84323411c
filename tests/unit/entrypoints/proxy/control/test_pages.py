"""A list comes in pages, of which none leaves a thing out or has one twice."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.entrypoints.proxy.control.pages import PageAsked, audit_cursor, audit_place, cut, page_of
from understudy.errors import QueryInvalid
from understudy.ports.registry.registry import AuditEntry, AuditPlace, AuditSubject


@given(st.sets(st.text(min_size=1, max_size=3), max_size=12), st.integers(1, 5))
def test_the_pages_of_a_list_are_the_list(names, limit):
    found, cursor, pages = list[str](), None, 0
    while pages == 0 or cursor is not None:
        page, cursor = page_of(list(names), str, PageAsked(limit, cursor))
        found, pages = found + page, pages + 1
        assert len(page) <= limit

    assert found == sorted(names)
    assert pages <= len(names) // limit + 1


@pytest.mark.parametrize("there", [0, 2, 3])
def test_one_thing_more_than_a_page_says_that_there_is_another(there):
    page, cursor = cut(list(range(there)), str, 2)

    assert list(page) == list(range(min(2, there)))
    assert cursor == ("1" if there > 2 else None)


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "9" * 40, "\u0661"])
def test_a_cursor_that_no_answer_said_is_refused(cursor):
    with pytest.raises(QueryInvalid) as refused:
        _ = PageAsked(5, cursor).after_id

    assert [one.pointer for one in refused.value.violations] == ["/query/cursor"]


@pytest.mark.parametrize("cursor", ["x", "12", "a.b", "1.2.3"])
def test_a_cursor_that_is_none_of_the_audits_is_refused(cursor):
    with pytest.raises(QueryInvalid):
        audit_place(cursor)


@pytest.mark.parametrize("place", [AuditPlace(), AuditPlace(3), AuditPlace(None, 4), AuditPlace(3, 4)])
def test_a_page_without_a_change_ends_where_the_page_before_did(place):
    assert audit_place(audit_cursor([], place)) == place


def test_the_next_page_of_the_audit_begins_after_the_oldest_of_each_table():
    shown = [entry(9, AuditSubject.POLICY), entry(7, AuditSubject.KEY), entry(8, AuditSubject.POLICY)]

    assert audit_place(audit_cursor(shown, AuditPlace(20, 30))) == AuditPlace(8, 7)


def entry(number: int, subject: AuditSubject) -> AuditEntry:
    at = datetime(2026, 11, 26, tzinfo=UTC)
    return AuditEntry(number, None, None, at, "k1", "http", None, "UPDATE", None, None, subject, None, None)
