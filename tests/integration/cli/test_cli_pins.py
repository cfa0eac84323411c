"""``version register`` of an artifact in a store: its digest is registered, or compared with the one that is given."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import asyncpg
import orjson
import pytest
from command import CommandLine, Done
from loopback.s3 import LOGIN
from loopback.scripted_bucket import Bucket
from loopback.scripted_server import a_scripted_server

WEIGHTS = b"weights" * 1_000
DIGEST = f"sha256:{sha256(WEIGHTS).hexdigest()}"
ADDRESS = "s3://models/visits/7/model.onnx"
DESCRIBED = {"framework": "onnx", "input_schema": {"features": [{"name": "age", "dtype": "float32"}]}}


class Store(NamedTuple):
    """A bucket with an artifact, and what ``version register`` needs to read it."""

    environment: dict[str, str]
    folder: Path

    async def register(
        self, understudy: CommandLine, *options: str, digest: str | None = None, address: str = ADDRESS
    ) -> Done:
        place = self.folder / "version.json"
        place.write_bytes(orjson.dumps(DESCRIBED | ({} if digest is None else {"artifact_digest": digest})))
        arguments = ("version", "register", "visits", "7", "--from", str(place), "--artifact", address)
        return await understudy.beside(*arguments, *options, **self.environment)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with a_scripted_server(Bucket(WEIGHTS)) as server:
        yield Store({"UNDERSTUDY_ARTIFACT_ENDPOINT": server.url, **LOGIN}, tmp_path)


async def digest_of_row(database: asyncpg.Connection) -> str | None:
    """Return the digest of the version that is registered; ``none`` where none is."""
    rows = await database.fetch("SELECT artifact_digest FROM ModelVersion WHERE version = '7'")
    return rows[0][0] if rows else "none"


async def test_an_artifact_in_a_store_is_pinned_by_its_registration(understudy, database, store):
    tried = await store.register(understudy, "--group", "onnx", "--dry-run", "--json")
    assert (tried.document["version"]["artifact_digest"], await digest_of_row(database)) == (DIGEST, "none")

    done = await store.register(understudy, "--group", "onnx")

    assert done.code == 0, done
    assert await digest_of_row(database) == DIGEST


async def test_a_digest_that_is_given_is_compared_and_another_one_is_not_registered(understudy, database, store):
    refused = await store.register(understudy, "--group", "onnx", digest="sha256:" + "0" * 64)
    nothing = await digest_of_row(database)
    done = await store.register(understudy, "--group", "onnx", digest=DIGEST)

    assert refused.code == 1
    assert f"{ADDRESS} is {DIGEST}, not sha256:{'0' * 64}: not registered" in refused.said
    assert nothing == "none"
    assert (done.code, await digest_of_row(database)) == (0, DIGEST)


async def test_a_store_that_cannot_be_read_from_here_is_said_with_the_way_round_it(understudy, database, store):
    refused = await store.register(understudy, "--group", "onnx", address="s3://absent/visits/7")
    unread = await store.register(understudy, "--group", "onnx", "--no-pin", address="s3://absent/visits/7")

    assert refused.code == 69
    assert "add --no-pin: the artifact is then pinned when an agent fetches it first" in refused.said
    assert (unread.code, await digest_of_row(database)) == (0, None)


async def test_an_artifact_that_people_load_is_not_read(understudy, database, store):
    done = await store.register(understudy, "--endpoint", "127.0.0.1:9000", address="s3://absent/visits/7")

    assert (done.code, await digest_of_row(database)) == (0, None)
