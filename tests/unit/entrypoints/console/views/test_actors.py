"""Who did something: a key's id has its note behind it, wherever it stands."""

from datetime import UTC, datetime

import pytest

from understudy.entrypoints.console.views.actors import MAX_NOTE, act_words, by_whom, noted, noted_entries, noted_text
from understudy.ports.registry.registry import AuditEntry, AuditSubject

KEY, OTHER = "4f2a90c1d7be", "000000000000"
NOTES = {KEY: "ana, on call"}


@pytest.mark.parametrize(
    ("actor", "words"),
    [
        (KEY, f"{KEY} (ana, on call)"),
        (OTHER, OTHER),
        ("monitor", "monitor"),
        ("proxy:kim@shop.example",) * 2,
        ("understudy", "the database login understudy"),
        ("understudy_operator", "the database login understudy_operator"),
        ("understudy@shop.example",) * 2,
    ],
)
def test_a_key_is_named_by_its_note_and_a_login_with_the_products_name_as_a_login(actor, words):
    assert noted(actor, NOTES) == words


def test_a_note_of_any_length_takes_one_line():
    shown = noted(KEY, {KEY: "n" * 1_000})

    assert shown == f"{KEY} ({'n' * (MAX_NOTE - 1)}…)"


def test_a_sentence_names_each_of_its_keys_and_nothing_that_only_looks_like_one():
    text = f"paused by {KEY}: after {OTHER} and {KEY}00"

    assert noted_text(text, NOTES) == f"paused by {KEY} (ana, on call): after {OTHER} and {KEY}00"
    assert noted_text(text, {}) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("paused by understudy: lunch", "paused by the database login understudy: lunch"),
        (
            "version 7 gets 50 %: promoted by understudy",
            "version 7 gets 50 %: promoted by the database login understudy",
        ),
        ("paused by understudy@shop.example: lunch",) * 2,
        ("paused by ana: as told by understudy",) * 2,
    ],
)
def test_a_command_of_a_login_with_the_products_name_says_so_and_other_words_stay(text, words):
    assert noted_text(text, {}) == words


@pytest.mark.parametrize(
    ("actor", "via", "words"),
    [
        ("understudy", "psql", "SQL as understudy"),
        ("dana@example.org", "sql", "SQL as dana@example.org"),
        ("understudy", "cli", "the database login understudy"),
        ("dana", "cli", "dana"),
        ("monitor", "rollout", "monitor"),
        (KEY, "console", f"{KEY} (ana, on call)"),
    ],
)
def test_a_change_by_sql_says_so(actor, via, words):
    at = datetime(2026, 11, 20, tzinfo=UTC)
    reason = f"aborted by {KEY}: slow"
    entry = AuditEntry(1, "churn", 5, at, actor, via, reason, "update", None, None, AuditSubject.POLICY, "churn", None)

    [shown] = noted_entries([entry], NOTES)

    assert (shown.actor, shown.reason) == (words, f"aborted by {KEY} (ana, on call): slow")


def test_the_monitor_is_no_person_of_that_name():
    assert [by_whom(actor) for actor in ("monitor", "dana")] == ["the monitor", "dana"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("paused by ana: lunch", ("paused", "lunch")),
        ("goes on by ana", ("goes on", "")),
        ("version 7 goes on as it was", ("version 7 goes on as it was", "")),
    ],
)
def test_an_act_on_a_rollout_is_told_apart_from_its_reason(reason, words):
    assert act_words(reason, "ana") == words
