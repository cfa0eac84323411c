"""The nouns of the command line, and the page that lists them: plain text, so that no framework is loaded for it."""

import shutil
import sys
from collections.abc import Iterator
from os import environ
from textwrap import wrap

ABOUT = "Understudy routes each predict call to a champion or a challenger model, shows it to a shadow, and logs it."
EXIT_CODES = (
    "Exit codes: 0 done, 1 problem found, 2 usage, 3 rolled back or degraded, 4 not found, 5 conflict, 6 undecided, "
    "7 not allowed, 69 unreachable, 130 interrupted."
)
GROUPS = {
    "Begin": {
        "demo": "Start everything on this machine: a first prediction, a rollback, a promotion.",
        "examples": "Register the example models, and call them steadily.",
        "context": "Name proxies that commands go to with a key, without a database login.",
    },
    "Run": {
        "serve": "Run a process of Understudy: the proxy, the monitor, an agent.",
        "modelserver": "Run the development model server.",
        "db": "Bring the database's schema up to date, check it, archive, open a SQL prompt.",
        "doctor": "Check everything this installation depends on.",
    },
    "Models": {
        "version": "Register, load, compare, check, list, show and retire model versions.",
        "model": "List and show models; set who answers their calls.",
        "server": "The model servers that agents load versions into.",
        "apply": "Make policies what their files say.",
        "diff": "Say how policies differ from their files.",
        "key": "Create, list and revoke callers' keys.",
        "predict": "Make one predict call, and say who answered it.",
        "explain": "Say why an entity gets its answer, or what an error code means.",
    },
    "Rollouts": {
        "plan": "Say how risky a rollout is, and how long it would take.",
        "rollout": "Start, follow and steer rollouts.",
        "source": "Follow registries: an alias or tag that moves starts a rollout.",
        "rollback": "Send all traffic of a model back, at once.",
    },
    "Measure": {
        "ab": "Plan A/B tests, report on them, bring outcomes in.",
        "shadow": "Compare the shadow's answers with the champion's.",
        "drift": "Say what drifted, and set baselines.",
        "log": "Ask the prediction log, follow it; send logged inputs to another version.",
    },
    "Account for": {
        "audit": "List who changed what, when and why.",
        "subscription": "Tell receivers of events: CloudEvents, Slack's format.",
        "entity": "Erase an entity from all that is kept of it.",
    },
}
NOUNS = {noun: line for group in GROUPS.values() for noun, line in group.items()}
"""Each noun's line in the help. Its module has its name: ``cli/<noun>.py``, or ``cli/<noun>/commands.py``."""
_OPTIONS = {
    "-h, --help": "Show this page, or with a command its own.",
    "--version": "Print the version and leave.",
    "--install-completion": "Have this shell complete commands.",
    "--show-completion": "Print what that needs, to install it by hand.",
}
_MAX_COLUMNS, _MIN_COLUMNS = 100, 40
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def help_page(columns: int, *, is_styled: bool = False) -> str:
    """Return the help of the whole command for a terminal of so many columns."""
    width = max(_MIN_COLUMNS, min(columns, _MAX_COLUMNS))

    def section(title: str, lines: dict[str, str], indent: int) -> Iterator[str]:
        yield f"{_BOLD}{title}{_PLAIN}" if is_styled else title
        for name, line in lines.items():
            told = wrap(line, width - indent)
            yield f"  {name:<{indent - 2}}{told[0]}"
            yield from (f"{'':<{indent}}{more}" for more in told[1:])
        yield ""

    lines = ["Usage: understudy [OPTIONS] COMMAND [ARGS]...", "", *wrap(ABOUT, width), ""]
    for title, nouns in GROUPS.items():
        lines += section(title, nouns, max(map(len, NOUNS)) + 4)
    lines += section("Options", _OPTIONS, max(map(len, _OPTIONS)) + 4)
    return "\n".join([*lines, *wrap(EXIT_CODES, width)])


def print_help() -> None:
    """Print the help of the whole command."""
    is_styled = sys.stdout.isatty() and "NO_COLOR" not in environ
    sys.stdout.write(help_page(shutil.get_terminal_size().columns, is_styled=is_styled) + "\n")
