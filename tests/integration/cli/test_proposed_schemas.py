"""``version register`` has the schemas said by a model server or a file, and compares those that a person wrote."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import CommandLine

from understudy.adapters.embedded.loopback_ports import free_port

MODELS = Path(__file__).parents[3] / "src/understudy/models"
CHOSEN = ("--output", "probabilities", "--score", "1", "--answer-bounds", "0:1")
TOLD = {
    "features": [{"name": "input", "dtype": "float32", "shape": [9]}],
}
_WAITS = """
    SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = current_database()
"""
ANSWER = {"tensor": "probabilities", "dtype": "float32", "shape": [2], "score_index": 1, "min": 0, "max": 1}


def described(tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "version.json"
    path.write_text(
        json.dumps(
            {"artifact_path": "file:m", "framework": "onnx", "input_schema": TOLD, "output_schema": ANSWER} | changes
        )
    )
    return str(path)


@pytest.mark.parametrize("protocol", ["oip", "tfserving"])
async def test_a_server_says_the_schemas_of_its_model_and_they_are_stored_once_confirmed(
    understudy: CommandLine, model_port: Callable[[str], int], protocol
):
    target = f"127.0.0.1:{model_port('visits:2')}"
    told = ("--from-server", "--endpoint", target, "--protocol", protocol, "--backend", "version=2", *CHOSEN)
    named = ("version", "register", "visits", "2", *told, "--artifact", "s3://models/visits/2")

    tried = await understudy.beside(*named, "--dry-run")
    unconfirmed = await understudy.beside(*named)
    done = await understudy.beside(*named, "--yes", "--json")

    assert (tried.code, unconfirmed.code, done.code) == (0, 2, 0), (tried, unconfirmed, done)
    assert "Would register visits 2; nothing was written." in tried.said
    assert "--columns input=NAME" in tried.said
    assert f"✔ {target}: the model server has these tensors" in tried.said
    assert "Look at them with --dry-run, then add --yes." in unconfirmed.err
    version = done.document["version"]
    assert (version["input_schema"], version["output_schema"]) == (TOLD, ANSWER)
    assert (version["backend"], version["protocol"]) == ({"version": "2"}, protocol)
    assert version["framework"] == {"oip": "onnx", "tfserving": "tensorflow"}[protocol]


async def test_a_file_of_a_converter_says_the_schemas_and_what_it_cannot_say_is_asked_for(understudy: CommandLine):
    named = ("version", "register", "visits", "2", "--from-onnx", str(MODELS / "visits-2.onnx"), "--yes", "--json")
    columns = ("age", "tenure", "a", "b", "c", "d", "e", "f", "g")

    several = await understudy.beside(*named)
    done = await understudy.beside(*named, *CHOSEN, "--columns", ",".join(columns))

    assert (several.code, '"code":"E220"' in several.err, "--output NAME" in several.err) == (2, True, True)
    assert done.code == 0, done.err
    version = done.document["version"]
    assert [feature["name"] for feature in version["input_schema"]["features"]] == list(columns)
    assert version["input_schema"]["tensors"][0]["name"] == "input"
    assert version["artifact_path"].startswith("file:")


async def test_a_model_with_the_tensors_of_another_version_gets_its_schemas(understudy: CommandLine, tmp_path):
    named = ("--from-onnx", str(MODELS / "visits-2.onnx"), "--yes", "--json")
    columns = ("age", "tenure", "a", "b", "c", "d", "e", "f", "g")
    await understudy.beside("version", "register", "visits", "2", *named, *CHOSEN, "--columns", ",".join(columns))

    done = await understudy.beside("version", "register", "visits", "3", *named, "--like", "2")
    other = ("--from-onnx", str(MODELS / "digits-1.onnx"), "--yes", "--like", "2")
    refused = await understudy.beside("version", "register", "visits", "4", *other)
    both = await understudy.beside("version", "register", "visits", "4", *named, "--like", "2", "--score", "0")
    lost = await understudy.beside("version", "register", "visits", "4", *named, "--group", "onnx", "--like", "2")
    server = ("--from-server", "--endpoint", "127.0.0.1:1", "--artifact", "file:m", "--group", "onnx")
    two_places = await understudy.beside("version", "register", "visits", "4", *server)

    first = await understudy.beside("version", "show", "visits", "2", "--json")
    assert done.code == 0, done.err
    for part in ("input_schema", "output_schema"):
        assert done.document["version"][part] == first.document["version"][part]
    assert (refused.code, "is unlike version 2: the input input FP32 [?, 64] would be sent" in refused.said) == (
        1,
        True,
    )
    assert (both.code, lost.code, "--artifact URI" in lost.err) == (2, 2, True)
    assert (two_places.code, "Leave --group out" in two_places.err) == (2, True)


async def test_the_folder_of_an_mlflow_model_says_them_too(understudy: CommandLine, tmp_path):
    inputs = [{"type": "double", "name": name, "required": True} for name in ("age", "tenure")]
    outputs = [{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1]}}]
    signature = f"signature:\n  inputs: '{json.dumps(inputs)}'\n  outputs: '{json.dumps(outputs)}'\n"
    (tmp_path / "MLmodel").write_text(signature)

    done = await understudy.beside(
        "version", "register", "churn", "1", "--from-mlflow", str(tmp_path), "--yes", "--json"
    )

    assert done.code == 0, done.err
    version = done.document["version"]
    assert (version["framework"], version["output_schema"]) == ("mlflow", {"dtype": "float64", "shape": []})
    assert version["input_schema"]["features"] == [
        {"name": "age", "dtype": "float64"},
        {"name": "tenure", "dtype": "float64"},
    ]


async def test_a_server_with_other_tensors_refuses_the_version_before_anything_is_written(
    understudy: CommandLine, model_port: Callable[[str], int], tmp_path, database
):
    target = f"127.0.0.1:{model_port('visits:2')}"
    wrong = {
        "input_schema": {"features": [{"name": "input", "dtype": "float64", "shape": [8]}]},
        "output_schema": {**ANSWER, "tensor": "p"},
    }
    file = described(tmp_path, backend={"version": "2"}, **wrong)
    named = ("version", "register", "visits", "2", "--from", file, "--endpoint", target)

    refused = await understudy.beside(*named)
    unasked = await understudy.beside(*named, "--no-ask", "--dry-run")

    assert (refused.code, refused.err.startswith("✖ E221"), unasked.code) == (1, True, 0), refused.said
    assert f"{target}: the input 'input' is FP32, and the schema says FP64" in refused.said
    assert "the input input FP32 [?, 9] would be sent with the shape [?, 8]" in refused.said
    assert "there is no output 'p'; there is: label INT64 [?], probabilities FP32 [?, 2]" in refused.said
    assert await database.fetchval("SELECT count(*) FROM ModelVersion") == 0


async def test_a_port_without_a_server_and_a_server_without_the_model_are_warned_of(
    understudy: CommandLine, model_port: Callable[[str], int], tmp_path
):
    dead, other = f"127.0.0.1:{free_port()}", f"127.0.0.1:{model_port('visits:1')}"
    file = described(tmp_path, backend={"version": "2"})

    done = await understudy.beside(
        "version", "register", "visits", "2", "--from", file, "--endpoint", dead, "--endpoint", other
    )
    told = await understudy.beside(
        "version", "register", "visits", "3", "--from-server", "--endpoint", dead, "--artifact", "file:m"
    )

    assert done.code == 0, done.err
    assert f"! the model server at {dead} is not reached: nothing listens there" in done.said
    assert f"! the model server at {other} says NOT_FOUND" in done.said
    lost = await understudy.beside("version", "register", "visits", "3", "--from-server", "--endpoint", "a", "--json")

    assert (lost.code, lost.out, json.loads(lost.err)["error"]["code"]) == (69, "", "E503")
    assert (told.code, "E503" in told.err, "nothing listens there" in told.said) == (69, True, True)
    assert "Start the server, or correct --endpoint" in told.said


async def test_a_version_that_never_served_is_replaced_and_one_that_did_is_not(
    understudy: CommandLine, tmp_path, database
):
    named = ("version", "register", "visits", "2", "--no-ask", "--endpoint")
    first, second = described(tmp_path), ("--from", described(tmp_path, timeout_ms=900), "--json")
    await understudy.beside(*named, "127.0.0.1:9001", "--from", first)
    version_id = await database.fetchval("SELECT id FROM ModelVersion")

    twice = await understudy.beside(*named, "127.0.0.1:9002", *second)
    tried = await understudy.beside(*named, "127.0.0.1:9002", *second, "--replace", "--dry-run")
    said = await understudy.beside(*named, "127.0.0.1:9002", *second[:2], "--replace", "--dry-run")
    targets = await database.fetchval("SELECT array_agg(target) FROM ModelEndpoint")
    done = await understudy.beside(*named, "127.0.0.1:9002", *second, "--replace")
    await understudy.beside("model", "set", "visits", "--champion", "2", "--reason", "the first", "--yes")
    served = await understudy.beside(*named, "127.0.0.1:9002", *second, "--replace")

    assert (twice.code, '"code":"E205"' in twice.err) == (5, True)
    assert (tried.code, targets) == (0, ["127.0.0.1:9001"])
    assert "Would replace visits 2; nothing was written." in said.said
    assert (done.code, done.document["version"]["id"], done.document["version"]["timeout_ms"]) == (0, version_id, 900)
    assert done.document["version"]["endpoints"] == ["127.0.0.1:9002"]
    assert (served.code, '"code":"E222"' in served.err, "version 2 of visits is champion" in served.err) == (
        5,
        True,
        True,
    )


async def test_a_call_that_is_being_logged_while_its_version_is_replaced_is_waited_for_and_refuses_that(
    understudy: CommandLine, tmp_path, database
):
    named = ("version", "register", "visits", "2", "--from", described(tmp_path))
    await understudy.beside(*named)

    async with database.transaction():
        await database.execute(
            "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms)"
            " SELECT id, 'a', '', '{}', 1 FROM ModelVersion"
        )
        replacing = asyncio.create_task(understudy.beside(*named, "--replace", "--json"))
        while not await database.fetchval(_WAITS):
            assert not replacing.done()
    replaced = await replacing

    assert (replaced.code, "version 2 of visits was called" in replaced.err) == (5, True)


async def test_a_version_for_agents_is_replaced_until_one_has_fetched_its_artifact(
    understudy: CommandLine, tmp_path, database
):
    named = ("version", "register", "visits", "2", "--from", described(tmp_path), "--group", "onnx")
    await understudy.beside(*named)
    await database.execute("INSERT INTO ModelServer (name, group_name, target) VALUES ('onnx-0', 'onnx', 'a:1')")
    await database.execute(
        "INSERT INTO Placement (model_version_id, server, why, epoch) SELECT id, 'onnx-0', 'asked', 1 FROM ModelVersion"
    )

    placed = await understudy.beside(*named, "--replace")
    await database.execute("DELETE FROM Placement")
    done = await understudy.beside(*named, "--replace")
    await database.execute("UPDATE VersionLoading SET pinned_digest = 'sha256:' || repeat('a', 64)")
    fetched = await understudy.beside(*named, "--replace")

    assert (placed.code, "is loaded by agents" in placed.said) == (5, True)
    assert "understudy version unload visits 2, then replace it" in placed.said
    assert done.code == 0, done.err
    assert (fetched.code, "is pinned: an agent has fetched its artifact" in fetched.said) == (5, True)
