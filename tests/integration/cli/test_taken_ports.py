"""A port that somebody has is named, with the setting that changes it, before a proxy starts."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.running.port_check import require_proxy_ports
from understudy.settings import Settings


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def settings(**given: object) -> Settings:
    return Settings.model_validate({"port": 0, "metrics_port": 0, **given})


def test_ports_that_are_free_stand_in_nobodys_way():
    require_proxy_ports(settings())


def test_a_port_that_was_just_let_go_is_free():
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)):
        server.accept()[0].close()

    require_proxy_ports(settings(port=port))


@pytest.mark.parametrize(
    ("field", "setting"),
    [
        ("port", "UNDERSTUDY_PORT"),
        ("grpc_port", "UNDERSTUDY_GRPC_PORT"),
        ("metrics_port", "UNDERSTUDY_METRICS_PORT"),
    ],
)
def test_a_taken_port_is_named_with_the_setting_that_changes_it(taken, field, setting):
    with pytest.raises(CommandRefused) as refused:
        require_proxy_ports(settings(**{field: taken}))

    assert refused.value.exit_code is ExitCode.PROBLEM
    assert f"port {taken} of 127.0.0.1" in refused.value.detail
    assert "is taken by another process" in refused.value.detail
    assert f"set {setting} to a port that is free" in refused.value.next_step


def test_the_metrics_port_of_another_proxy_of_this_account_is_shared_as_its_workers_share_it():
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
        require_proxy_ports(settings(metrics_port=server.getsockname()[1]))


@pytest.mark.timed
def test_the_grpc_port_that_workers_of_another_proxy_share_is_taken(monkeypatch):
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
        mine = settings(grpc_port=server.getsockname()[1], workers=2)
        with pytest.raises(CommandRefused):
            require_proxy_ports(mine)

        monkeypatch.setenv("GUNICORN_FD", "5")  # the one before, which ends once this one is there
        require_proxy_ports(mine)


def test_an_address_that_is_not_this_machines_is_named():
    with pytest.raises(CommandRefused) as refused:
        require_proxy_ports(settings(host="192.0.2.1", port=8080))

    assert "192.0.2.1:8080 cannot be had for predict calls" in refused.value.detail
    assert "UNDERSTUDY_HOST" in refused.value.next_step


def test_the_command_leaves_with_1_and_says_what_to_do_without_a_traceback(taken, tmp_path):
    for setting in ("UNDERSTUDY_PORT", "UNDERSTUDY_METRICS_PORT"):
        others = {"UNDERSTUDY_PORT": "0", "UNDERSTUDY_METRICS_PORT": "0", "UNDERSTUDY_STATE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "understudy.entrypoints.cli", "serve", "proxy"],
            env={**os.environ, **others, setting: str(taken)},
            timeout=120,
            check=False,
            capture_output=True,
            text=True,
        )

        assert (done.returncode, done.stdout) == (1, "")
        assert f"✖ port {taken} of 127.0.0.1" in done.stderr
        assert f"set {setting} to a port that is free" in done.stderr
        assert "Traceback" not in done.stderr


def test_several_workers_get_a_socket_that_was_handed_over(taken, monkeypatch):
    monkeypatch.setenv("GUNICORN_FD", "5")

    require_proxy_ports(settings(port=taken, workers=2))
