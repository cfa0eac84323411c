"""``understudy doctor`` against real model servers of which some are not well."""

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from command import CommandLine, Done
from contract.servers import MODEL_NAME, Behaviour, running

from understudy.adapters.disk.snapshot_file import JsonSnapshotFile
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.adapters.postgres.registry.policy import PostgresPolicySource

pytestmark = pytest.mark.timed  # the doctor waits for a server for two seconds
NUMBERS = {"features": [{"name": "x", "dtype": "float32", "shape": [3]}]}
CHAMPION = f"{MODEL_NAME} 1 champion"


async def serve(database: asyncpg.Connection, *endpoints: str, timeout_ms: int = 20_000, backend: str = "{}") -> None:
    """Make a champion with these model servers."""
    version_id = await database.fetchval(
        "INSERT INTO ModelVersion"
        " (model_name, version, artifact_path, framework, input_schema, output_schema, timeout_ms, backend)"
        " VALUES ($1, '1', 's3://models/linear/1', 'sklearn', $2, '{\"tensor\": \"p\"}', $3, $4) RETURNING id",
        MODEL_NAME, json.dumps(NUMBERS), timeout_ms, backend,
    )  # fmt: skip
    for endpoint in endpoints:
        await database.execute(
            "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", version_id, endpoint
        )
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", MODEL_NAME, version_id
    )


def champion_in(done: Done) -> dict[str, Any]:
    return next(finding for finding in done.document["findings"] if finding["name"] == CHAMPION)


async def test_one_of_two_servers_that_is_not_ready_is_named_with_how_long_each_took(
    database: asyncpg.Connection, understudy: CommandLine
):
    async with running(Behaviour(), Behaviour(ready=False)) as (good, unready):
        await serve(database, good.endpoint, unready.endpoint)
        done = await understudy.beside("doctor", "--json")
        text = await understudy.beside("doctor")

    found = champion_in(done)
    assert (done.code, text.code, found["state"]) == (0, 0, "warning")
    assert re.fullmatch(
        rf"served by 1 of its 2 model servers; {unready.endpoint}: it says that it does not serve the version "
        rf"\(\d+ ms\); answered: {good.endpoint} in \d+ ms",
        found["what"],
    )
    assert f"! {CHAMPION} served by 1 of its 2 model servers" in " ".join(text.out.split())


async def test_a_champion_of_which_no_server_answers_is_a_problem_and_each_is_named(
    database: asyncpg.Connection, understudy: CommandLine
):
    nobody = f"127.0.0.1:{free_port()}"
    async with running(Behaviour(ready=False)) as (unready,):
        await serve(database, nobody, unready.endpoint)
        done = await understudy.beside("doctor", "--json")

    found = champion_in(done)
    assert (done.code, found["state"]) == (1, "problem")
    assert found["what"].startswith("served by none of its 2 model servers; ")
    assert f"{nobody}: nothing listens there (" in found["what"]
    assert f"{unready.endpoint}: it says that it does not serve the version" in found["what"]


async def test_servers_that_are_well_are_named_with_how_long_each_took(
    database: asyncpg.Connection, understudy: CommandLine
):
    async with running(Behaviour(), Behaviour()) as (one, other):
        await serve(database, one.endpoint, other.endpoint)
        done = await understudy.beside("doctor", "--json")

    found = champion_in(done)
    assert (done.code, found["state"]) == (0, "good")
    assert found["what"].startswith("served by 2 model servers: ")
    for server in (one, other):
        assert re.search(rf"{server.endpoint} in \d+ ms", found["what"])


@pytest.mark.parametrize("hanging", [1, 2])
async def test_a_server_that_hangs_holds_the_doctor_up_for_its_deadline_and_no_longer(
    database: asyncpg.Connection, understudy: CommandLine, hanging: int
):
    async with running(Behaviour(), *[Behaviour(probes_hang=True)] * hanging) as servers:
        await serve(database, *(server.endpoint for server in servers))
        done = await understudy.beside("doctor", "--json")

    found = champion_in(done)
    assert (done.code, found["state"]) == (0, "warning")
    assert found["what"].startswith(f"served by 1 of its {hanging + 1} model servers")
    for server in servers[1:]:
        assert re.search(
            rf"{server.endpoint}: it accepted the connection and did not answer within 2 s \(\d+\.\d s\)", found["what"]
        )


async def test_a_challenger_of_a_later_releases_protocol_is_left_out_by_doctor_and_explain_as_by_proxies(
    database: asyncpg.Connection, understudy: CommandLine
):
    async with running(Behaviour()) as (good,):
        await serve(database, good.endpoint)
        await database.execute("ALTER TABLE ModelVersion DROP CONSTRAINT modelversion_protocol_check")
        later = await database.fetchval(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, output_schema,"
            " protocol) SELECT model_name, '2', artifact_path, framework, input_schema, output_schema, 'quic'"
            " FROM ModelVersion RETURNING id"
        )
        await database.execute("UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 100", later)
        doctor = await understudy.beside("doctor", "--json")
        explained = await understudy.beside("explain", MODEL_NAME, "customer-1", "--json")

    told = [finding["what"] for finding in doctor.document["findings"]]
    assert any("this release speaks no protocol 'quic' to model servers" in what for what in told), told
    assert explained.document["assignment"]["role"] == "champion"


async def test_a_token_for_any_host_and_one_in_plain_text_are_warnings_without_the_token_itself(
    database: asyncpg.Connection, understudy: CommandLine
):
    secret = {"UNDERSTUDY_BACKEND_TOKEN_A": "t0ken-A", "UNDERSTUDY_BACKEND_TOKEN_B": "t0ken-B"}
    async with running() as (good,):
        backend = '{"token_env": "UNDERSTUDY_BACKEND_TOKEN_B"}'
        await serve(database, good.endpoint, "model-server.invalid:8001", backend=backend)
        done = await understudy.beside(
            "doctor", "--json", **secret, UNDERSTUDY_BACKEND_TOKEN_B_HOSTS="127.0.0.1,*.invalid"
        )

    states = {finding["name"]: finding["state"] for finding in done.document["findings"]}
    assert done.code == 0
    assert states["token UNDERSTUDY_BACKEND_TOKEN_A"] == "warning"
    assert states["token UNDERSTUDY_BACKEND_TOKEN_B"] == "good"
    assert states[f"{MODEL_NAME} 1 token"] == "warning"
    assert "t0ken" not in done.out + done.err


async def test_a_split_is_a_problem_while_no_monitor_leads_and_is_not_called_watched(
    database: asyncpg.Connection, database_url: str, understudy: CommandLine
):
    async with running(Behaviour()) as (good,):
        await serve(database, good.endpoint)
        whole = await understudy.beside("doctor", "--json")
        second = await database.fetchval(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, output_schema)"
            " SELECT model_name, '2', artifact_path, framework, input_schema, output_schema FROM ModelVersion"
            " RETURNING id"
        )
        await database.execute(
            "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", second, good.endpoint
        )
        await database.execute("UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 20", second)
        split = await understudy.beside("doctor", "--json")
        lease = PostgresLease(database_url)
        await lease.take_or_renew("vm:1")
        led = await understudy.beside("doctor", "--json")
        await lease.close()

    assert (whole.code, split.code, led.code) == (0, 1, 0)
    before, after = guard_in(split), guard_in(led)
    assert before["state"] == "problem"
    assert before["what"].startswith("no monitor leads, so nothing watches the split")
    assert (after["state"], after["what"]) == ("good", "the split is watched, guard = rollback")


def guard_in(done: Done) -> dict[str, Any]:
    return next(finding for finding in done.document["findings"] if finding["name"] == f"guard {MODEL_NAME}")


async def save_policies(database_url: str, state_dir: Path) -> None:
    """Write what a proxy has read, as it does."""
    source = PostgresPolicySource(database_url)
    JsonSnapshotFile(state_dir / "policy.json").write(await source.load())
    await source.close()


async def test_while_postgres_is_away_it_says_what_goes_on_and_asks_the_servers_of_the_policies_that_a_proxy_saved(
    database: asyncpg.Connection, database_url: str, understudy: CommandLine, tmp_path: Path
):
    spool = tmp_path / "state/spool/5f0c0000-0000-4000-8000-0000000000e1"
    spool.mkdir(parents=True)
    (spool / "001763661061.log").write_bytes(bytes(3 * 1_048_576))
    async with running(Behaviour(), Behaviour(ready=False)) as (good, unready):
        await serve(database, good.endpoint, unready.endpoint)
        await save_policies(database_url, tmp_path / "state")
        away = {"DATABASE_URL": f"postgresql://me@127.0.0.1:{free_port()}/understudy"}
        done = await understudy.beside("doctor", "--json", **away, UNDERSTUDY_STATE_DIR=str(tmp_path / "state"))
        elsewhere = await understudy.beside("doctor", "--json", **away, UNDERSTUDY_STATE_DIR=str(tmp_path / "other"))

    found = {finding["name"]: finding for finding in done.document["findings"]}
    assert (done.code, found["postgres"]["state"], done.document["problems"]) == (1, "problem", 1)
    assert found["meanwhile"]["what"].startswith("if proxies do not reach Postgres either, those that run answer by")
    assert found["policy.json"]["what"].startswith(f"of 1 model in {tmp_path}/state")
    assert found["spool"]["what"].startswith("at most 3.0 MiB of rows wait")
    assert found[CHAMPION]["what"].startswith("served by 1 of its 2 model servers")
    there = {finding["name"]: finding for finding in elsewhere.document["findings"]}
    assert (elsewhere.code, there["policy.json"]["state"]) == (1, "warning")
    assert CHAMPION not in there


async def test_while_postgres_is_away_what_of_the_state_folder_cannot_be_read_is_told_and_not_called_missing(
    understudy: CommandLine, tmp_path: Path
):
    # A loop of links refuses root, too, as a folder of another user refuses us.
    for name in ("policy.json", "spool"):
        (tmp_path / name).symlink_to(name)
    away = {"DATABASE_URL": f"postgresql://me@127.0.0.1:{free_port()}/understudy"}
    done = await understudy.beside("doctor", "--json", **away, UNDERSTUDY_STATE_DIR=str(tmp_path))

    found = {finding["name"]: finding for finding in done.document["findings"]}
    assert (done.code, found["policy.json"]["state"], found["spool"]["state"]) == (1, "warning", "warning")
    assert "Too many levels of symbolic links" in found["policy.json"]["what"]
    assert "refuses calls" not in found["policy.json"]["what"]
    assert "Too many levels of symbolic links" in found["spool"]["what"]


async def test_a_postgres_that_hangs_holds_the_doctor_up_for_its_time_out_and_no_longer(
    understudy: CommandLine, tmp_path: Path
):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/understudy"
        began = time.monotonic()
        done = await understudy.beside(
            "doctor", "--json", DATABASE_URL=url, UNDERSTUDY_DATABASE_TIMEOUT_SECONDS="1",
            UNDERSTUDY_STATE_DIR=str(tmp_path),
        )  # fmt: skip
        took = time.monotonic() - began

    assert done.code == 1
    assert any(finding["name"] == "meanwhile" for finding in done.document["findings"])
    assert took < 10
