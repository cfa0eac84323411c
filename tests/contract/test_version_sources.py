"""Registries that sources follow, over HTTP: what a label names, and what one that hangs or lies does."""

import gzip
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from loopback.oci_registry import INDEX, LOGINS_OF, PASSWORD, Registry, a_registry, digest_of
from loopback.scripted_server import Answering, ScriptedServer, a_scripted_server

from understudy.adapters.artifacts.image_tag import ImageTag
from understudy.adapters.artifacts.oci_registry import OciAccess
from understudy.adapters.artifacts.origin import Limits
from understudy.adapters.http.mlflow_registry import MAX_ANSWER_BYTES, MlflowRegistry
from understudy.bootstrap.registering.version_sources import open_sources, variable_problems
from understudy.core.loading.image_tag import VERSION
from understudy.core.loading.oci_address import parse_logins
from understudy.core.rollout.sources.version_source import STEPS, SourceSpec
from understudy.errors import ArtifactNotTaken, SchemaNotTold, SourceAway
from understudy.ports.registry.version_source import VersionSource
from understudy.settings import Settings

TOKEN = "a-token-that-none-may-see"
SECONDS = 0.5
"""Longest time of a call here."""
VERSION_7 = {"version": "7", "creation_timestamp": 1_790_000_000_000, "run_id": "r1", "user_id": "ana"}


class Mlflow:
    """A registry of models whose answers a test chooses."""

    server: ScriptedServer

    def __init__(self) -> None:
        self.version: Any = dict(VERSION_7)
        self.uri: Any = "s3://m/7"
        self.answer: Callable[[Answering], object] | None = None

    def __call__(self, answering: Answering) -> None:
        if self.answer is not None:
            self.answer(answering)
        elif answering.asked.path.startswith("/api/2.0/mlflow/registered-models/alias?"):
            answering.send(200, json.dumps({"model_version": self.version}).encode())
        else:
            answering.send(200, json.dumps({"artifact_uri": self.uri}).encode())


@contextmanager
def a_model_registry() -> Iterator[tuple[Mlflow, ScriptedServer]]:
    mlflow = Mlflow()
    with a_scripted_server(mlflow) as server:
        yield mlflow, server


@pytest.fixture
def mlflow() -> Iterator[Mlflow]:
    with a_model_registry() as (found, server):
        found.server = server
        yield found


@pytest.fixture
async def alias(mlflow: Any):
    spec = SourceSpec("mlflow", "fraud", mlflow.server.url, "eu.fraud", "challenger")
    registry = MlflowRegistry(spec, TOKEN, timeout_seconds=SECONDS)
    yield registry
    await registry.close()


async def test_an_alias_names_a_version_with_what_tells_it_from_others_and_the_steps_that_it_asks_for(mlflow, alias):
    mlflow.version["tags"] = [{"key": "owner", "value": "ana"}, {"key": STEPS, "value": "1,5"}]

    offered = await alias.offered()

    assert offered is not None
    assert (offered.number, offered.artifact, offered.steps) == ("7", "s3://m/7", "1,5")
    assert offered.note == {
        "registered_model": "eu.fraud", "version": "7", "run_id": "r1", "made_at": "2026-09-21T14:13:20+00:00",
    }  # fmt: skip
    assert offered.reason == "mlflow: eu.fraud@challenger is version 7, registered by ana"
    assert mlflow.server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    "said",
    [
        {"creation_timestamp": "9" * 30},
        {"creation_timestamp": "²"},
        {"creation_timestamp": -5},
        {"creation_timestamp": [1]},
        {"run_id": {"deep": ["x"] * 1_000}},
        {"run_id": "r" * 1_000},
        {"user_id": "ana\nand a second line"},
        {"user_id": "\u001b[31mred"},
        {"user_id": "u" * 10_000},
        {"tags": "none"},
        {"tags": [1, None, {"key": STEPS}, {"key": STEPS, "value": 7}]},
    ],
)
async def test_what_a_registry_says_that_cannot_be_used_is_left_out(mlflow, alias, said):
    mlflow.version.update(said)

    offered = await alias.offered()

    assert offered is not None
    assert len(json.dumps(offered.note)) < 500
    assert offered.reason.isprintable()
    assert len(offered.reason) < 500
    assert offered.steps is None


@pytest.mark.parametrize(
    ("version", "uri"),
    [
        ({"version": 7}, "s3://m/7"),
        ({"version": "7/../8"}, "s3://m/7"),
        ({"version": "7" * 41}, "s3://m/7"),
        ({}, "s3://m/7"),
        ([], "s3://m/7"),
        (VERSION_7, ""),
        (VERSION_7, ["s3://m/7"]),
        (VERSION_7, "s3://m/" + "7" * 2_000),
        (VERSION_7, "s3://m/7\n"),
    ],
)
async def test_a_registry_that_names_no_version_or_no_address_is_away(mlflow, alias, version, uri):
    mlflow.version, mlflow.uri = version, uri

    with pytest.raises(SourceAway):
        await alias.offered()


async def test_a_registry_that_hangs_drips_pours_or_redirects_is_away_within_its_time(mlflow, alias):
    drip = b"x" * 10

    def slowly(answering: Answering) -> None:
        answering.pour(200, b"")  # until the caller hangs up

    for answer, words in (
        (Answering.hang, "no answer within 0.5 s"),
        (lambda one: one.pour(200, b"x" * 65_536), f"more than {MAX_ANSWER_BYTES:,} bytes"),
        (lambda one: one.send(302, drip, {"location": f"{mlflow.server.url}/elsewhere"}), "302"),
        (lambda one: one.send(200, b"{" * 100_000), "200"),
        (lambda one: one.send(500, json.dumps({"message": "\u001b[31m" + "m" * 999}).encode()), "500 "),
        (slowly, "no answer within 0.5 s"),
    ):
        mlflow.answer = answer
        began = time.monotonic()
        with pytest.raises(SourceAway) as away:
            await alias.offered()
        assert words in away.value.detail
        assert away.value.detail.isprintable()
        assert len(away.value.detail) < 500
        assert time.monotonic() - began < 5 * SECONDS
    assert not any(one.path.startswith("/elsewhere") for one in mlflow.server.requests)


async def test_an_answer_that_is_compressed_is_not_opened(mlflow, alias):
    bomb = gzip.compress(b"0" * 50_000_000)
    mlflow.answer = lambda one: one.send(200, bomb, {"content-encoding": "gzip"})

    with pytest.raises(SourceAway, match="compressed"):
        await alias.offered()

    assert mlflow.server.requests[0].headers["accept-encoding"] == "identity"


async def test_a_signature_that_is_none_is_told_of(mlflow, alias):
    offered = await alias.offered()
    mlflow.answer = lambda one: one.send(200, b"&a [" * 10_000)

    with pytest.raises(SchemaNotTold):
        await alias.described(offered)


@pytest.mark.parametrize("login", ["a-to\nken", "to\u20acken", "to\x00ken", "\x7f"])
async def test_a_login_that_no_header_can_have_is_refused_at_the_start_and_repeated_nowhere(login):
    spec = SourceSpec("mlflow", "fraud", "http://127.0.0.1:1", "fraud", "challenger", token_env="LOGIN")

    problems = variable_problems([spec], {"LOGIN": login})

    assert problems == ["LOGIN: it has characters that no header can have"]
    assert variable_problems([spec], {"LOGIN": " token\n"}) == []
    assert variable_problems([spec], {"LOGIN": "\n"}) == ["LOGIN: not set"]
    assert variable_problems([spec._replace(kind="oci", url="oci://r/a:b")], {"LOGIN": "token"}) == [
        "LOGIN: the login of an image registry is user:password"
    ]


async def test_a_login_is_in_no_problem_and_no_log(mlflow, caplog):
    caplog.set_level(logging.DEBUG)
    spec = SourceSpec("mlflow", "fraud", mlflow.server.url, "fraud", "challenger")
    for login in (f"{TOKEN}\n", f"user:{TOKEN}"):
        registry = MlflowRegistry(spec, login, timeout_seconds=SECONDS)
        for answer in (lambda one: one.send(401, b"no"), lambda one: one.send(200)):
            mlflow.answer = answer
            with pytest.raises(SourceAway) as away:
                await registry.offered()
            assert TOKEN not in str(away.value)
        await registry.close()
    assert TOKEN not in caplog.text


# -- images ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def images() -> Iterator[Registry]:
    with a_registry("token") as registry:
        yield registry


def a_tag(images: Registry, *, seconds: float = 10.0, with_login: bool = True) -> ImageTag:
    logins = parse_logins(LOGINS_OF.format(images.name)) if with_login else {}
    spec = SourceSpec("oci", "visits", f"oci://{images.name}/models/visits:canary", "visits", "canary")
    return ImageTag(spec, OciAccess(logins, frozenset()), Limits(seconds=seconds))


async def digest_at(source: VersionSource) -> str:
    offered = await source.offered()
    assert offered is not None
    return str(offered.note["digest"])


def push(images: Registry, content: bytes, **annotations: str) -> str:
    return images.push("canary", [images.file("model.onnx", content)], annotations=annotations)


def manifests(images: Registry) -> list[str]:
    return [
        one.method for one in images.server.requests if "/manifests/" in one.path and "authorization" in one.headers
    ]


async def test_a_tag_names_an_image_with_its_digest_and_what_it_says_of_itself(images):
    tag = a_tag(images)
    assert await tag.offered() is None
    digest = push(images, b"weights", **{VERSION: "2026.11", STEPS: "1,5"})

    offered = await tag.offered()

    assert offered is not None
    assert (offered.number, offered.distinction, offered.steps) == ("2026.11", digest[7:19], "1,5")
    assert offered.artifact == f"oci://{images.name}/models/visits:canary@{digest}"
    assert offered.note == {"image": f"{images.name}/models/visits", "digest": digest}


async def test_a_tag_that_stays_is_asked_for_its_digest_alone_and_one_that_moves_back_is_seen(images):
    tag = a_tag(images)
    first = push(images, b"one")
    one = await tag.offered()
    asked = len(manifests(images))
    again = [await tag.offered() for _ in range(3)]
    later = manifests(images)[asked:]
    second = push(images, b"two")
    two = await tag.offered()
    images.manifests["canary"] = images.manifests[first]
    back = await tag.offered()

    assert one == back
    assert again == [one] * 3
    assert one is not None
    assert two is not None
    assert (one.note["digest"], two.note["digest"]) == (first, second)
    assert later == ["HEAD"] * 3
    assert manifests(images).count("GET") == 3


async def test_a_tag_that_moves_between_its_digest_and_its_manifest_is_what_the_manifest_is(images):
    tag = a_tag(images)
    push(images, b"one")

    def says_an_older_digest(answering: Answering, content: bytes) -> None:
        push(images, b"two")
        answering.send(200, content, {"docker-content-digest": digest_of(content)})

    images.faults["manifests/canary"] = [says_an_older_digest]
    assert await digest_at(tag) == digest_of(images.manifests["canary"][1])
    first = push(images, b"one")

    assert await digest_at(tag) == first


async def test_a_registry_that_knows_no_question_for_digests_is_asked_for_manifests(images):
    tag = a_tag(images)
    digest = push(images, b"one")
    for _ in range(2):
        images.faults["manifests/canary"] = [lambda one, _: one.send(405)]
        assert await digest_at(tag) == digest


async def test_a_tag_of_several_platforms_is_refused_with_their_digests(images):
    one, two = push(images, b"one"), push(images, b"two")
    entries = [{"mediaType": "m", "digest": digest, "size": 9} for digest in (one, two)]
    images.push_document("canary", {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})

    with pytest.raises(ArtifactNotTaken, match=f"is a list of 2 manifests: register one .*{one}"):
        await a_tag(images).offered()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda one, _: one.hang(), "takes longer than|does not answer in time"),
        (lambda one, _: one.pour(200, b"x" * 65_536), "more than"),
        (lambda one, _: one.send(503, b"", {"retry-after": "3600"}), "503"),
        (lambda one, _: one.send(302, b"", {"location": "http://127.0.0.1:1/v2/"}), "cannot be connected to"),
        (lambda one, _: one.send(200, b"{}"), "unknown kind"),
        (lambda one, content: one.send(200, gzip.compress(content), {"content-encoding": "gzip"}), "not JSON"),
    ],
)
async def test_an_image_registry_that_hangs_pours_or_lies_is_away_or_refused_within_its_time(images, fault, words):
    push(images, b"one")
    images.faults["manifests/canary"] = [fault] * 2
    began = time.monotonic()

    with pytest.raises((SourceAway, ArtifactNotTaken), match=words) as problem:
        await a_tag(images, seconds=SECONDS).offered()

    assert PASSWORD not in str(problem.value)
    assert time.monotonic() - began < 6 * SECONDS


async def test_a_login_of_the_source_goes_before_that_of_the_settings_and_without_one_the_registry_is_away(images):
    digest = push(images, b"one")
    spec = SourceSpec("oci", "v", f"oci://{images.name}/models/visits:canary", "v", "canary", token_env="LOGIN")
    settings = Settings(oci_logins='{"auths": {"' + images.name + '": {"username": "old", "password": "wrong"}}}')

    async with open_sources([spec], settings, {"LOGIN": f"puller:{PASSWORD}\n"}) as [(_, source)]:
        assert await digest_at(source) == digest
    with pytest.raises(SourceAway):
        await a_tag(images, with_login=False).offered()
