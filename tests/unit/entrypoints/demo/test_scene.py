"""What the demo shows: commands that a shell takes as they are."""

import io
import json
import shlex
from pathlib import Path

from rich.console import Console

from understudy.entrypoints.cli.scene import WIDTH, Scene, curl_command, next_commands
from understudy.entrypoints.demo.run import Demo, first_request
from understudy.entrypoints.demo.topology import POLICIES, SERVERS, VERSIONS, endpoints_of

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


def test_the_next_commands_change_the_split_with_plain_sql_or_the_command_line():
    said = " ".join(next_commands(DEMO))

    assert "challenger_weight = 50" in said or "--weight 50" in said
    assert "understudy explain visits customer-42" in said


def test_a_part_that_is_ready_takes_one_line_of_80_columns():
    console = Console(file=io.StringIO(), width=80, color_system=None)
    scene = Scene(console)

    scene.ready("models", "visits champion 1, challenger 2, bad 3, shadow 4; digits 1", 1.23)

    (line,) = console.file.getvalue().splitlines()
    assert line.endswith("1.2 s")
    assert len(line) <= 80


def test_without_a_terminal_the_figures_come_at_growing_intervals():
    console = Console(file=io.StringIO(), width=80, color_system=None, force_terminal=False)
    scene = Scene(console)
    scene.introduce(DEMO, b'{"prediction":{"score":0.5}}', calls_per_second=20)
    console.file.truncate(0)

    with scene.live():
        for _ in range(50):
            scene.note("something happened")

    assert console.file.getvalue().count("something happened") == 50
    assert "last 10 s" not in console.file.getvalue()


def test_every_version_of_the_demo_has_a_server_and_every_role_a_version():
    targets = {server.name: f"127.0.0.1:{9_000 + number}" for number, server in enumerate(SERVERS)}
    known = {(version.model_name, version.version) for version in VERSIONS}

    endpoints = [endpoints_of(version, targets) for version in VERSIONS]

    assert all(endpoints)
    assert len(endpoints[0]) == 2
    for policy in POLICIES:
        named = {policy.champion, policy.challenger, policy.shadow} - {None}
        assert {(policy.model_name, version) for version in named} <= known
