"""``understudy log replay`` over a real Postgres, to real model servers of which the answers are known."""

import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import grpc
import pytest
from command import CommandLine, Done
from contract.servers import MODEL_NAME, Behaviour, running
from traffic.logged import LoggedTraffic
from worlds.logged_calls import CALLS, NUMBERS, LoggedCalls

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.core.prediction_log.row import Status
from understudy.core.routing.policy import Role

WORD: dict[str, Any] = {"features": [{"name": "word", "dtype": "string"}]}


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str) -> AsyncIterator[LoggedCalls]:
    traffic = LoggedTraffic(database_url)
    yield LoggedCalls(database, traffic)
    await traffic.close()


async def replay(understudy: CommandLine, *options: str, version: str = "7") -> Done:
    return await understudy.beside("log", "replay", MODEL_NAME, version, *options, "--json")


def found_in(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = done.document["replay"]
    return found


async def test_the_known_differences_are_found_and_nothing_is_written(world, understudy):
    async with running() as (server,):
        before = await world.add_version("6")
        await world.add_version("7", server.endpoint)
        await world.log(before, CALLS)
        written = await world.written()
        done = await replay(understudy)
        text = await understudy.beside("log", "replay", MODEL_NAME, "7")

    found = found_in(done)
    assert (done.code, text.code) == (0, 0), done.err
    assert server.completed == 2 * 40
    assert (found["calls"], found["replayed"], found["agreed"], found["differed"]) == (40, 40, 30, 10)
    assert found["answered_by"] == {"6": 40}
    assert found["distances"] == pytest.approx({"mean": 0.125, "p50": 0.0, "p95": 0.5, "largest": 0.5}, abs=1e-5)
    assert found["scores"]["now_mean"] - found["scores"]["then_mean"] == pytest.approx(-0.125)
    assert [example["difference"] for example in found["examples"]] == pytest.approx([-0.5] * 5)
    assert found["latency"]["then_p50_seconds"] == pytest.approx(0.012999)
    assert found["latency"]["p50_seconds"] > 0
    assert await world.written() == written
    assert "The same answer as then in 30 of 40 calls (75.0 %); the scores are 0.125 apart" in text.said
    assert "Nothing was written" in text.said


async def test_only_calls_that_were_answered_with_inputs_in_that_time_and_by_that_version_are_sent(world, understudy):
    async with running() as (server,):
        six, five = await world.add_version("6"), await world.add_version("5")
        seven = await world.add_version("7", server.endpoint)
        await world.log(six, CALLS[:10])
        await world.log(five, CALLS[:7], role=Role.CHALLENGER)
        await world.log(seven, CALLS[:3])
        await world.log(six, [(None, 1.0)] * 5)
        await world.log(six, CALLS[:4], status=Status.TIMEOUT, error_code="E504")
        world.at -= 2 * 86_400
        await world.log(six, CALLS[:20])

        of_others, of_five, of_itself, limited, earlier = [
            found_in(await replay(understudy, *options))
            for options in (
                (),
                ("--from-version", "5"),
                ("--from-version", "7"),
                ("--limit", "2", "--from-version", "6"),
                ("--since", "7d"),
            )
        ]

    assert of_others["answered_by"] == {"6": 10, "5": 7}
    assert of_five["answered_by"] == {"5": 7}
    assert of_itself["answered_by"] == {"7": 3}
    assert earlier["answered_by"] == {"6": 30, "5": 7}
    # The newest two; of them the older one differs.
    assert [example["entity_id"] for example in limited["examples"]] == ["cust-8"]
    assert limited["calls"] == 2


async def test_a_class_that_changed_is_named(world, understudy):
    async with running() as (server,):
        before = await world.add_version("6", inputs=WORD, output={})
        await world.add_version("7", server.endpoint, inputs=WORD, output={"tensor": "label"})
        await world.log(before, [({"word": "pro"}, {"label": "PRO"}), ({"word": "free"}, {"label": "PRO"})])
        found = found_in(await replay(understudy))

    assert found["classes"] == {"pairs": 2, "changed": 1, "changed_percent": 50}
    assert found["examples"][0]["then"] == {"score": None, "label": "PRO"}
    assert found["examples"][0]["now"] == {"score": None, "label": "FREE"}


async def test_calls_that_fail_are_counted_by_code_and_leave_with_1(world, understudy):
    async with running(Behaviour(code=grpc.StatusCode.INTERNAL, failures=3)) as (server,):
        before = await world.add_version("6")
        await world.add_version("7", server.endpoint)
        await world.log(before, CALLS)
        done = await replay(understudy, "--concurrency", "1")

    found = found_in(done)
    assert done.code == 1
    assert [(one["code"], one["calls"]) for one in found["failed"]] == [("E502", 3)]
    assert found["agreed"] + found["differed"] == 37
    assert "secret-path" not in done.out + done.err


async def test_a_call_has_the_time_that_is_given_and_all_of_them_together_too(world, understudy):
    async with running(Behaviour(delay_seconds=0.4)) as (server,):
        before = await world.add_version("6")
        await world.add_version("7", server.endpoint)
        await world.log(before, CALLS)
        late = await replay(understudy, "--timeout-ms", "50", "--limit", "4")
        began = time.monotonic()
        cut = await replay(understudy, "--within", "2s", "--concurrency", "1")
        took = time.monotonic() - began

    assert (late.code, cut.code) == (1, 1)
    assert [(one["code"], one["calls"]) for one in found_in(late)["failed"]] == [("E504", 4)]
    assert found_in(cut)["failed"] == []
    assert found_in(cut)["unsent"] == 40 - found_in(cut)["replayed"] > 0
    assert took < 30


async def test_a_private_input_is_not_in_the_log_and_is_not_made_up(world, understudy):
    private = {**NUMBERS, "features": [*NUMBERS["features"][:2], {"name": "c", "dtype": "float32", "private": True}]}
    async with running() as (server,):
        before = await world.add_version("6", inputs=private)
        await world.add_version("7", server.endpoint)
        await world.log(before, [({"a": 1.0, "b": 1.0}, 11.0)])
        done = await replay(understudy)

    assert done.code == 1
    assert found_in(done)["incomparable"] == [{"reason": "not in the log: c", "calls": 1}]
    assert server.calls == 0


async def test_without_stored_inputs_it_says_how_to_store_them(world, understudy):
    before = await world.add_version("6")
    await world.add_version("7")
    await world.database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", MODEL_NAME, before
    )
    await world.log(before, [(None, 1.0)])
    done, text = await replay(understudy), await understudy.beside("log", "replay", MODEL_NAME, "7")

    assert (done.code, found_in(done)["state"], found_in(done)["calls"]) == (1, "no_inputs", 0)
    assert f"understudy model set {MODEL_NAME} --input-sample-percent 5 --reason" in text.said


async def test_what_is_not_there_not_ready_or_not_to_be_read_is_said(world, understudy):
    before = await world.add_version("6")
    await world.add_version("7", f"127.0.0.1:{free_port()}")
    await world.log(before, CALLS)
    nobody = await understudy.beside("log", "replay", "nobody", "7")
    no_version = await replay(understudy, version="8")
    not_before = await replay(understudy, "--from-version", "9")
    away = await replay(understudy)
    no_time = await replay(understudy, "--since", "yesterday")
    too_long = await replay(understudy, "--within", "2d")
    too_many = await replay(understudy, "--limit", "10001")

    assert [done.code for done in (nobody, no_version, not_before, away)] == [4, 4, 4, 69]
    assert [done.code for done in (no_time, too_long, too_many)] == [2, 2, 2]
    assert "it has: 6, 7" in no_version.err
    assert f"no model server of {MODEL_NAME} 7 says that it is ready; nothing was sent" in away.err


async def test_answers_that_are_all_the_same_to_the_last_bit_are_asked_about_and_one_call_of_two_versions_is_named(
    world, understudy
):
    exact = [({"a": float(n), "b": 1.0, "c": 0.0}, n + 10.0) for n in range(50)]
    async with running() as (server,):
        before = await world.add_version("6", server.endpoint)
        await world.add_version("7", server.endpoint)
        await world.add_version("8", server.endpoint, backend='{"version": "8"}')
        await world.log(before, exact)
        same = await understudy.beside("log", "replay", MODEL_NAME, "7")
        fewer = await understudy.beside("log", "replay", MODEL_NAME, "7", "--limit", "49")
        perhaps = found_in(await replay(understudy, version="8"))["sentence"]
        itself = found_in(await replay(understudy, "--from-version", "6", version="6"))["sentence"]

    asked = "Every answer is the same to the last bit: is version 7 really another model?"
    named = f"6 and 7 are the same call at {server.endpoint}: one model there answers both"
    assert "The same answer as then in all 50 calls." in same.said
    assert asked in same.said
    assert named in same.said
    assert f"understudy version diff {MODEL_NAME} 6 7 shows whether they are two models" in same.said
    assert "to the last bit" not in fewer.said
    assert named in fewer.said
    assert f"6 lets the server at {server.endpoint} choose its version, which may be the model of 8" in perhaps
    assert itself == "The same answer as then in all 50 calls."
