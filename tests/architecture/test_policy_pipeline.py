"""The example of a pipeline for policies: the actions that we use ourselves, and commands as they are."""

import re
from pathlib import Path

from understudy.entrypoints.cli.shared.startup.noun_group import load

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = (ROOT / "deploy" / "github" / "policies.yml").read_text(encoding="utf-8")


def test_its_actions_are_pinned_as_our_own_are():
    ours = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")

    used = set(re.findall(r"uses: (\S+)", EXAMPLE))

    assert used
    assert used <= set(re.findall(r"uses: (\S+)", ours))


def test_it_holds_keys_of_a_proxy_and_no_login_of_a_database():
    assert "DATABASE_URL" not in EXAMPLE
    assert set(re.findall(r"(UNDERSTUDY_\w+): \$", EXAMPLE)) == {"UNDERSTUDY_CREDENTIAL"}


def test_its_commands_take_the_options_that_it_gives_them():
    commands = re.findall(r"bin/understudy (\w+) ([^|\n]+)", EXAMPLE)

    assert [name for name, _ in commands] == ["diff", "apply"]
    for name, arguments in commands:
        taken = {option for parameter in load(name).params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", arguments)) <= taken
