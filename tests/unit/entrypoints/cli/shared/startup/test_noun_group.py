"""How the help of a noun's commands is shown."""

from typing import Any

import pytest

from understudy.entrypoints.cli.shared.startup.noun_group import load


@pytest.mark.parametrize(("noun", "command"), [("server", "drain"), ("ab", "report"), ("rollback", None)])
def test_a_paragraph_of_help_is_one_line_that_fits_any_terminal(noun, command):
    found: Any = load(noun)
    found = found if command is None else found.commands[command]

    paragraphs = found.help.split("\n\n")

    assert len(paragraphs) > 1
    assert max(map(len, paragraphs)) > 80
    assert not any("\n" in paragraph for paragraph in paragraphs)
