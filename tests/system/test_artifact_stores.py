"""From an artifact in a bucket, or in a registry of images, to an answer of the model: all of it as processes."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command import CommandLine
from e2e.lifecycle import GIVE_UP_SECONDS, Lifecycle, predict, until
from e2e.load import Connection
from e2e.stack import PREDICT_BODIES, Stack, a_stack, sql
from loopback.oci_registry import LOGINS_OF, PASSWORD, TOKEN, a_registry
from loopback.s3 import LOGIN, an_s3_server, make_bucket, put_object

from understudy.adapters.dev_server.example_models import example_version

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    with a_stack(tmp_path, database_url) as started:
        yield started


async def test_a_version_is_loaded_from_a_bucket_and_answers_and_one_whose_objects_were_changed_is_not(
    stack: Stack, database_url: str, understudy: CommandLine
):
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    stack.start_proxy()
    with an_s3_server(stack.folder) as endpoint:
        make_bucket(endpoint, "models")
        for label in (1, 2):
            put_object(endpoint, "models", f"visits/{label}/model.onnx", example_version("visits", label).read())
        store = {"UNDERSTUDY_ARTIFACT_STORES": "s3://models/visits", "UNDERSTUDY_ARTIFACT_ENDPOINT": endpoint, **LOGIN}
        lifecycle.start_agent(store)
        for label in (1, 2):
            registered = await understudy.beside(
                *("version", "register", "visits", str(label), "--from", str(lifecycle.describe(label))),
                *("--artifact", f"s3://models/visits/{label}", "--group", "onnx"),
                **store,
            )
            assert registered.code == 0, registered
        pins = "SELECT count(*) FROM ModelVersion WHERE artifact_digest ~ '^sha256:'"
        assert (await sql(database_url, pins))[0][0] == 2  # before an agent has fetched anything
        loaded = [await understudy.beside("version", "load", "visits", label, "--wait", "--json") for label in "12"]
        assert [done.code for done in loaded] == [0, 0], loaded
        await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
        with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
            answer = await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)

        # A server beside whose stage is gone fetches again what was registered, and takes nothing else for it.
        lifecycle.kill("agent")
        shutil.rmtree(stack.folder / "stage/artifacts")
        lifecycle.kill("server")
        put_object(endpoint, "models", "visits/2/model.onnx", example_version("visits", 1).read())
        lifecycle.start_server()
        lifecycle.start_agent(store)
        question = "SELECT max(error_code) FROM LoadedVersion WHERE state = 'ERROR'"
        await until(database_url, question, "E212")
        await until(database_url, "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE'", 1)

    assert answer["version"] == "1"
    assert LOGIN["AWS_SECRET_ACCESS_KEY"] not in stack.processes["agent"].log.read_text()


async def test_a_version_is_loaded_from_an_image_registry_by_the_digest_that_its_tag_had_when_it_was_registered(
    stack: Stack, database_url: str, understudy: CommandLine
):
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    stack.start_proxy()
    with a_registry("token") as registry:
        content = example_version("visits", 1).read()
        manifest = registry.push("canary", [registry.file("model.onnx", content)])
        address = f"oci://{registry.name}/models/visits"
        logins = stack.folder / "config.json"
        logins.write_text(LOGINS_OF.format(registry.name))
        store = {"UNDERSTUDY_ARTIFACT_STORES": address, "UNDERSTUDY_OCI_LOGINS_FILE": str(logins)}
        registered = await understudy.beside(
            *("version", "register", "visits", "1", "--from", str(lifecycle.describe(1))),
            *("--artifact", f"{address}:canary", "--group", "onnx"),
            **store,
        )
        assert registered.code == 0, registered
        registry.push("canary", [registry.file("model.onnx", b"no model")])
        lifecycle.start_agent(store)
        loaded = await understudy.beside("version", "load", "visits", "1", "--wait", "--json")
        assert loaded.code == 0, loaded
        await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
        with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
            answer = await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)

    assert answer["version"] == "1"
    ((path,),) = await sql(database_url, "SELECT artifact_path FROM ModelVersion")
    assert path == f"{address}:canary@{manifest}"
    log = stack.processes["agent"].log.read_text()
    assert [secret for secret in (PASSWORD, TOKEN) if secret in log] == []
