"""What the demo shows: commands that a shell takes as they are."""

import io
import json
import shlex
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from understudy.bootstrap.psql import find_psql
from understudy.entrypoints.cli.demo.screen import (
    DemoScreen,
    challenger_to_try,
    curl_command,
    next_commands,
    place_rows,
)
from understudy.entrypoints.cli.shared.texts.event_text import WIDTH
from understudy.entrypoints.demo.first_call import first_request
from understudy.entrypoints.demo.places import Demo
from understudy.entrypoints.demo.topology import (
    POLICIES,
    SCENARIO,
    SCENARIO_MODEL,
    SERVERS,
    UNTOUCHED,
    VERSIONS,
    Standing,
)
from understudy.entrypoints.demo.traffic import Call, summary_of

DEMO = Demo(
    Path("state"),
    database_url="postgresql://understudy@127.0.0.1:40001/understudy",
    proxy_port=8080,
    metrics_port=9090,
)


def test_the_first_call_can_be_pasted_into_a_shell():
    command = curl_command("http://127.0.0.1:8080", first_request())

    words = shlex.split(command.replace("\\\n", " "))

    assert words[:3] == ["curl", "-s", "http://127.0.0.1:8080/v1/models/visits/predict"]
    assert json.loads(words[-1]) == first_request()
    assert max(map(len, command.splitlines())) <= WIDTH


def test_the_first_call_to_a_proxy_that_asks_for_a_key_carries_it():
    command = curl_command("http://127.0.0.1:8080", first_request(), credential="k1.secret")

    words = shlex.split(command.replace("\\\n", " "))

    assert "authorization: Bearer k1.secret" in words
    assert json.loads(words[-1]) == first_request()


def test_the_next_commands_change_the_split_with_plain_sql_or_the_command_line():
    said = " ".join(next_commands(DEMO, is_scenario=False))

    assert "--challenger 2 --weight 10" in said
    assert ('db psql \\     -c "UPDATE ServingPolicy SET challenger_weight = 50' in said) == (find_psql() is not None)
    assert "postgresql://" not in said
    assert "understudy explain visits customer-42" in said
    command = said.split(" explain visits")[0].split()[-1]
    assert shutil.which(command), "as it is printed, a shell must find it"


def test_no_password_is_on_the_screen_and_sql_clients_find_it_in_its_file(tmp_path):
    url = "postgresql://understudy:hidden@127.0.0.1:40001/understudy"
    own = replace(DEMO, database_url=url, pass_file=Path("/a b/pgpass"), redis_url="redis://:hidden@127.0.0.1:7/0")
    another = replace(own, pass_file=None)

    said = [
        *next_commands(own, is_scenario=False),
        *(value for _, value in place_rows(own)),
        another.shown_database_url,
    ]

    assert "hidden" not in "\n".join(said)
    assert "postgresql://understudy@127.0.0.1:40001/understudy?passfile=/a%20b/pgpass" in said
    assert "redis://127.0.0.1:7/0" in said
    assert "postgresql://understudy@127.0.0.1:40001/understudy" in said


def test_a_password_among_the_parameters_is_not_on_the_screen_and_the_socket_stays():
    own = replace(
        DEMO,
        database_url="postgresql:///understudy?host=/run/postgresql&password=hidden",
        redis_url="redis://127.0.0.1:7/0?password=hidden",
    )

    said = [*next_commands(own, is_scenario=False), *(value for _, value in place_rows(own))]

    assert "hidden" not in "\n".join(said)
    assert "postgresql:///understudy?host=/run/postgresql" in said
    assert "redis://127.0.0.1:7/0" in said


def test_during_the_show_no_command_changes_the_split_under_the_rollout():
    said = " ".join(next_commands(DEMO, is_scenario=True))

    assert "rollout watch visits" in said
    assert "challenger_weight" not in said
    assert "model set" not in said


def test_a_demo_in_another_folder_says_how_commands_find_it():
    usual = replace(DEMO, state_dir=Path(".understudy"))

    first = next_commands(DEMO, is_scenario=True)[0]

    assert shlex.split(first) == ["export", f"UNDERSTUDY_STATE_DIR={Path.cwd() / 'state'}"]
    assert "UNDERSTUDY_STATE_DIR" not in " ".join(next_commands(usual, is_scenario=True))


def test_the_challenger_to_try_is_the_bad_one_only_when_there_is_no_other():
    promoted = Standing("2", is_new=False, candidates=frozenset({"3"}))
    without_shadow = Standing("2", is_new=False, candidates=frozenset({"3", "4"}))

    assert [challenger_to_try(standing) for standing in (UNTOUCHED, promoted, without_shadow)] == ["2", "3", "4"]


def test_a_part_that_is_ready_takes_one_line_of_80_columns():
    screen = io.StringIO()
    demo_screen = DemoScreen(Console(file=screen, width=80, color_system=None))

    demo_screen.ready("models", "visits 1 champion, 2 good, 3 bad, 4 shadow; digits 1", 1.23)

    (line,) = screen.getvalue().splitlines()
    assert line.endswith("1.2 s")
    assert len(line) <= 80


def test_without_a_terminal_a_line_of_figures_is_not_repeated_every_second():
    screen = io.StringIO()
    demo_screen = DemoScreen(Console(file=screen, width=80, color_system=None, force_terminal=False))
    recent = summary_of([Call(0.0, "champion", 0.004, failed=False)])

    with demo_screen.live():
        for _ in range(50):
            demo_screen.show_traffic(recent, 1, Counter())
        demo_screen.note("challenger was ended by SIGKILL")

    assert screen.getvalue() == "! challenger was ended by SIGKILL\n"


def test_on_a_terminal_the_figures_are_one_line_that_is_renewed():
    screen = io.StringIO()
    demo_screen = DemoScreen(Console(file=screen, width=100, force_terminal=True, color_system=None))
    recent = summary_of([Call(0.0, "champion", 0.004, failed=False)])

    with demo_screen.live():
        for total in range(3):
            demo_screen.show_traffic(recent, total, Counter())

    last, *_ = reversed(screen.getvalue().split("\r\x1b[2K"))
    assert "0 of 2 failed" in last
    assert screen.getvalue().count("\n") == 1


def test_the_demo_has_two_servers_and_every_role_a_version():
    known = {(version.model_name, version.version) for version in VERSIONS}

    assert len(set(SERVERS)) == 2
    for policy in POLICIES:
        named = {policy.champion, policy.challenger, policy.shadow} - {None}
        assert {(policy.model_name, version) for version in named} <= known
    assert {(SCENARIO_MODEL, int(step.version)) for step in SCENARIO} <= known
