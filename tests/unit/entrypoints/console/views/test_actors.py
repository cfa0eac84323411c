"""Who did something: a key's id has its note behind it, wherever it stands."""

import pytest

from understudy.entrypoints.console.views.actors import MAX_NOTE, noted, noted_text

KEY, OTHER = "4f2a90c1d7be", "000000000000"
NOTES = {KEY: "ana, on call"}


@pytest.mark.parametrize(
    ("actor", "words"),
    [(KEY, f"{KEY} (ana, on call)"), (OTHER, OTHER), ("monitor", "monitor"), ("proxy:kim@shop.example",) * 2],
)
def test_a_key_with_a_note_is_named_by_it_and_all_others_are_as_they_are(actor, words):
    assert noted(actor, NOTES) == words


def test_a_note_of_any_length_takes_one_line():
    shown = noted(KEY, {KEY: "n" * 1_000})

    assert shown == f"{KEY} ({'n' * (MAX_NOTE - 1)}…)"


def test_a_sentence_names_each_of_its_keys_and_nothing_that_only_looks_like_one():
    text = f"paused by {KEY}: after {OTHER} and {KEY}00"

    assert noted_text(text, NOTES) == f"paused by {KEY} (ana, on call): after {OTHER} and {KEY}00"
    assert noted_text(text, {}) == text
