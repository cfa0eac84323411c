"""What people read: tables that are never cut, and times as one says them."""

import io
import json

import pytest
from rich.console import Console
from rich.text import Text

from understudy.entrypoints.cli.shared.rendering import (
    SHOWN,
    Column,
    a_table,
    columns_that_fit,
    csv_cell,
    data_console,
    facts,
    nothing_as,
    print_json,
)

COLUMNS = (Column("model"), Column("version", right=True), Column("who", drop=1), Column("note", drop=2))
ROWS = [("visits", "1", "dana@example.org", "weekly retrain"), ("digits", "12", "-", "[bold] is text, not markup")]


def rendered(renderable, width: int) -> str:
    screen = io.StringIO()
    console = Console(file=screen, width=width, color_system=None, highlight=False, markup=False)
    console.print(renderable)
    text = screen.getvalue()
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_a_table_at_80_columns_looks_like_this():
    text = rendered(a_table(COLUMNS, ROWS, 80), 80)

    assert text == (
        "model   version  who               note\n"
        "─────────────────────────────────────────────────────────────\n"
        "visits        1  dana@example.org  weekly retrain\n"
        "digits       12  -                 [bold] is text, not markup"
    )


def test_a_narrow_table_leaves_out_the_least_important_column_first():
    text = rendered(a_table(COLUMNS, ROWS, 40), 40)

    assert text.splitlines()[0] == "model   version  who"
    assert "dana@example.org" in text


def test_what_must_stay_folds_and_is_never_cut():
    rows = [("a-model-whose-name-is-longer-than-the-terminal-is-wide", "1", "x", "y")]

    text = rendered(a_table(COLUMNS, rows, 30), 30)

    assert "…" not in text
    assert "a-model-whose-name-is-longer-than-the-terminal-is-wide" in "".join(
        line.split("  ")[0].strip() for line in text.splitlines()
    )


@pytest.mark.parametrize(("width", "kept"), [(200, [0, 1, 2, 3]), (40, [0, 1, 2]), (20, [0, 1]), (5, [0, 1])])
def test_columns_that_always_stay_stay_at_any_width(width, kept):
    assert columns_that_fit(COLUMNS, ROWS, width) == kept


def test_facts_fold_beside_their_name():
    text = rendered(facts([("schema", "word " * 20)]), 40)

    first, *others = text.splitlines()
    assert first.startswith("  schema  word")
    assert all(line.startswith("          word") for line in others)
    assert text.count("word") == 20


def test_text_with_style_counts_by_what_is_seen():
    assert columns_that_fit([Column("a"), Column("b", drop=1)], [(Text("12345", "bold red"), "67890")], 12) == [0, 1]


def test_nothing_is_shown_as_a_dash_and_zero_as_zero():
    assert [nothing_as(None), nothing_as(""), nothing_as(0), nothing_as("x")] == ["-", "-", "0", "x"]


OBEYED = [
    "\x1b",
    "\x7f",
    "\x9b",
    "\xad",
    "\u061c",
    "\u200b",
    "\u200f",
    "\u2028",
    "\u2029",
    "\u202e",
    "\u2066",
    "\ufeff",
]
OBEYED += ["\U000e0001", "\U000e0061"]


@pytest.mark.parametrize("character", OBEYED)
def test_a_character_that_a_terminal_obeys_or_hides_is_shown_as_a_mark_and_escaped_in_json(character, capsys):
    data_console().print(Text(f"a{character}b"))
    print_json({"name": f"a{character}b"})

    text, document, _ = capsys.readouterr().out.split("\n")
    assert text == f"a{SHOWN}b"
    assert character not in document
    assert document.isascii()
    assert json.loads(document)["name"] == f"a{character}b"


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "-"])
def test_a_text_that_a_spreadsheet_would_calculate_begins_with_a_quote_in_csv(text):
    assert csv_cell(text, is_shown=False) == "'" + text


@pytest.mark.parametrize(
    "cell", ["customer-42", "-1.5", "+3e7", "a=b", "", None, -1.5, True, "é", "two\nlines\tand a tab"]
)
def test_every_other_value_is_itself_in_csv(cell):
    assert csv_cell(cell, is_shown=False) == cell


@pytest.mark.parametrize("code", [*range(9), 0x0B, 0x0C, 0x1B, *range(0x7F, 0xA0)])
def test_a_file_of_csv_has_control_characters_escaped_as_json_has_them(code):
    cell = csv_cell(f"customer{chr(code)}2J", is_shown=False)

    assert cell == f"customer\\u{code:04x}2J" or (
        cell.isascii() and json.loads(f'"{cell}"') == f"customer{chr(code)}2J"
    )
    assert cell.isprintable()


def test_a_terminal_gets_marks_in_csv_too():
    assert csv_cell("=\x9b2J", is_shown=True) == f"'={SHOWN}2J"
