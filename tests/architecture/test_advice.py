"""Commands that are printed to be typed have names quoted for a shell: a name may hold blanks, ``;`` and ``$``."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "understudy"
COMMAND = re.compile(r"understudy [a-z]+( [a-z][a-z-]*)?( (--[a-z-]+|\x00|[A-Z]+|[0-9]+[a-z]?|'…'))* ?(--[a-z-]+ )?$")
"""The end of a text that is still a command's own words; NUL stands for a value."""
NO_NAMES = ("code", "codes", "scope", "id", "key_id", "parent.status")
"""Values that hold letters, digits and underlines alone."""


def unquoted(path: Path) -> Iterator[str]:
    """Yield each value that a command has as it came."""
    text = path.read_text(encoding="utf-8")
    if "understudy " not in text:  # most modules print no command, and walking all functions of all takes a second
        return
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        quoted = {
            name.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and "quote(" in ast.unparse(node.value)
            for target in node.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.JoinedStr):
                yield from _unquoted_in(node, quoted, path)


def _unquoted_in(text: ast.JoinedStr, quoted: set[str], path: Path) -> Iterator[str]:
    before = ""
    for part in text.values:
        if isinstance(part, ast.Constant):
            before += str(part.value)
        elif isinstance(part, ast.FormattedValue):
            value = ast.unparse(part.value)
            last = re.split(r"\W", value.strip(")]0123456789["))[-1]
            is_safe = value.startswith("quote(") or value in quoted or last in NO_NAMES
            if COMMAND.search(before) and not is_safe:
                yield f"{path.name}:{part.lineno}: {value}"
            before += "\0"


def test_values_in_commands_that_are_printed_are_quoted_for_a_shell():
    found = [place for path in sorted(SOURCE.rglob("*.py")) for place in unquoted(path)]

    assert found == []


def test_the_test_finds_a_value_as_it_came(tmp_path):
    path = tmp_path / "advice.py"
    path.write_text(
        "def say(model, version):\n"
        "    named = f'{quote(model)} {quote(version)}'\n"
        "    return [f'→ understudy rollout show {model} now', f'understudy version show {named}',\n"
        "            f'understudy model set {quote(model)} --champion {version}']\n"
    )

    assert list(unquoted(path)) == ["advice.py:3: model", "advice.py:4: version"]
