"""Artifacts in buckets: of a real S3 server, and of servers that answer wrongly, slowly, for ever or not at all."""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest
from loopback.s3 import SECRET, make_bucket, put_object
from loopback.scripted_bucket import LISTED, Bucket
from loopback.scripted_server import Answering, ScriptedServer, a_scripted_server

from understudy.adapters.artifacts.folder_origin import FolderOrigin
from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.artifacts.object_origin import RANGE_BYTES, ObjectOrigin
from understudy.adapters.artifacts.origin import Limits
from understudy.adapters.artifacts.permitted_origin import PermittedOrigin
from understudy.errors import ArtifactDiffers, ArtifactForbidden, ArtifactUnreachable, UnderstudyError

FILES = {"model.onnx": b"weights" * 300_000, "1/labels.txt": b"yes\nno\n", "1/empty": b""}


def stage_of(folder: Path, endpoint: str, limits: Limits | None = None, request_seconds: float = 10.0) -> FolderStage:
    origin = ObjectOrigin(endpoint, "us-east-1", request_seconds=request_seconds, first_pause_seconds=0.01)
    return FolderStage(folder / "stage", {"s3": origin}, limits)


def staged_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def left_on(folder: Path) -> list[str]:
    return [path.name for path in (folder / "stage").iterdir()] if (folder / "stage").exists() else []


@pytest.fixture
def model(s3_endpoint: str, bucket: str) -> str:
    for name, content in FILES.items():
        put_object(s3_endpoint, bucket, f"visits/7/{name}", content)
    put_object(s3_endpoint, bucket, "visits/71/other", b"of another version")
    return f"s3://{bucket}/visits/7"


async def test_a_prefix_is_staged_as_the_folder_of_the_same_files_and_has_its_digest(s3_endpoint, model, tmp_path):
    for name, content in FILES.items():
        (tmp_path / "artifacts/7" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "artifacts/7" / name).write_bytes(content)
    folder = await FolderStage(tmp_path / "other", {"": FolderOrigin(tmp_path / "artifacts")}).fetch("7", None)
    stage = stage_of(tmp_path, s3_endpoint)

    staged = await stage.fetch(model, None)

    assert (staged.digest, staged_files(staged.folder)) == (folder.digest, FILES)
    assert await stage.fetch(f"{model}/", staged.digest) == staged
    assert await stage.verified(staged.digest) == staged.folder


async def test_an_object_is_staged_as_the_file_of_its_name_under_its_sha256(s3_endpoint, model, tmp_path):
    staged = await stage_of(tmp_path, s3_endpoint).fetch(f"{model}/model.onnx", None)

    assert staged.digest == f"sha256:{sha256(FILES['model.onnx']).hexdigest()}"
    assert staged_files(staged.folder) == {"model.onnx": FILES["model.onnx"]}


async def test_an_object_of_several_ranges_comes_whole(s3_endpoint, bucket, tmp_path):
    content = bytes(range(256)) * (RANGE_BYTES // 128 + 1)
    put_object(s3_endpoint, bucket, "large", content)

    staged = await stage_of(tmp_path, s3_endpoint).fetch(f"s3://{bucket}/large", None)

    assert (staged.folder / "large").read_bytes() == content


async def test_a_changed_object_is_refused_under_the_digest_of_the_first_and_nothing_of_it_stays(
    s3_endpoint, model, bucket, tmp_path
):
    first = await stage_of(tmp_path, s3_endpoint).fetch(model, None)
    put_object(s3_endpoint, bucket, "visits/7/1/labels.txt", b"no\nyes\n")

    with pytest.raises(ArtifactDiffers, match=rf"is sha256:[0-9a-f]{{64}}, not {first.digest}: not loaded"):
        await stage_of(tmp_path / "another", s3_endpoint).fetch(model, first.digest)

    assert left_on(tmp_path / "another") == []


async def test_a_marker_of_a_folder_is_no_file(s3_endpoint, model, bucket, tmp_path):
    before = await stage_of(tmp_path, s3_endpoint).fetch(model, None)
    make_bucket(s3_endpoint, bucket, marker="/visits/7/1/")

    after = await stage_of(tmp_path / "another", s3_endpoint).fetch(model, None)

    assert after.digest == before.digest


@pytest.mark.parametrize(
    ("limits", "said"),
    [(Limits(most_bytes=1_000), "has more than 1,000 bytes"), (Limits(most_files=2), "has more than 2 files")],
)
async def test_an_artifact_beyond_a_bound_is_refused_by_its_list_before_a_byte_of_it_is_read(
    s3_endpoint, model, tmp_path, limits, said
):
    with pytest.raises(ArtifactUnreachable, match=said):
        await stage_of(tmp_path, s3_endpoint, limits).fetch(model, None)

    assert left_on(tmp_path) == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://{bucket}/nothing", "holds no file"),
        ("s3://no-such-bucket-anywhere/x", "404 NoSuchBucket"),
        ("s3://{bucket}/a//b", "empty path segment"),
        ("s3://{bucket}/a/../b", "illegal character sequence"),
        ("s3://key:secret@{bucket}/x", "has a login in it"),
        ("s3://{bucket}", "expected s3://bucket/key"),
    ],
)
async def test_what_is_no_artifact_is_said_to_be_none_without_repeating_a_password(
    s3_endpoint, bucket, tmp_path, address, said
):
    with pytest.raises(ArtifactUnreachable, match=said) as refused:
        await stage_of(tmp_path, s3_endpoint).fetch(address.format(bucket=bucket), None)

    assert "key:secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "size", "said"),
    [
        ("visits/7/../../etc/passwd", 4, "a key that is no path of a file"),
        ("visits/7/a//b", 4, "a key that is no path of a file"),
        ("visits/7/a&#10;b", 4, "a key that is no path of a file"),
        ("visits/77/x", 4, "lists 'visits/77/x', which is not below it"),
        ("visits/7/" + "a/" * 40 + "f", 4, "more than 32 folders"),
        ("visits/7/", 0, "holds no file"),
        ("visits/7/empty/", 0, "holds no file"),
    ],
)
async def test_a_key_that_is_no_file_below_the_address_is_refused_in_words(tmp_path, s3_login, key, size, said):
    listing = (
        '<?xml version="1.0"?><ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated><KeyCount>1'
        f"</KeyCount><Contents><Key>{key}</Key><LastModified>2026-11-26T11:00:00.000Z</LastModified>"
        f'<ETag>"a"</ETag><Size>{size}</Size></Contents></ListBucketResult>'
    )

    def answer(answering: Answering) -> None:
        is_list = "list-type" in answering.asked.path
        answering.send(200 if is_list else 404, listing.encode() if is_list else b"")

    with a_scripted_server(answer) as server, pytest.raises(UnderstudyError, match=said) as refused:
        await stage_of(tmp_path, server.url).fetch("s3://bucket/visits/7", None)

    assert refused.value.code == ("E219" if size else "E213")
    assert left_on(tmp_path) == []


async def test_a_store_that_is_not_permitted_is_asked_nothing(tmp_path):
    def open_origin() -> ObjectOrigin:
        raise AssertionError("it was opened")

    stage = FolderStage(tmp_path / "stage", {"s3": PermittedOrigin(open_origin, ("s3://models/visits",))})

    for address in ("s3://models/visitsx/7", "s3://other/visits/7", "s3://models/visits/../7"):
        with pytest.raises(ArtifactUnreachable, match="in none of the stores that UNDERSTUDY_ARTIFACT_STORES permits"):
            await stage.fetch(address, None)


# -- stores that do not work ------------------------------------------------------------------------------------------


@pytest.fixture
def scripted(s3_login: None) -> Iterator[Callable[[Callable[[Answering], None]], ScriptedServer]]:
    with ExitStack() as stack:
        yield lambda answer: stack.enter_context(a_scripted_server(answer))


def status(code: int) -> Callable[[Answering, bytes, dict[str, str]], object]:
    words = f"<Error><Code>Some</Code><AWSAccessKeyId>somebody</AWSAccessKeyId><S>{SECRET}</S></Error>".encode()
    return lambda answering, _, __: answering.send(code, words)


async def test_a_body_that_breaks_off_goes_on_where_it_broke(scripted, tmp_path):
    content = b"weights" * 1_000_000
    server = scripted(Bucket(content, lambda answering, part, headers: answering.send(206, part, headers, cut=10)))

    staged = await stage_of(tmp_path, server.url).fetch("s3://bucket/model", None)

    assert staged.digest == f"sha256:{sha256(content).hexdigest()}"
    ranges = [asked.headers["range"] for asked in server.requests if asked.method == "GET"]
    assert len(ranges) == 2
    assert int(re.findall(r"\d+", ranges[1])[0]) > 0


async def test_a_store_that_is_overloaded_for_a_while_is_asked_again(scripted, tmp_path):
    server = scripted(Bucket(b"weights", status(503), status(429), status(500)))

    staged = await stage_of(tmp_path, server.url).fetch("s3://bucket/model", None)

    assert staged_files(staged.folder) == {"model": b"weights"}
    assert {asked.headers["if-match"] for asked in server.requests if asked.method == "GET"} == {'"a"'}


async def test_an_object_without_an_etag_or_with_another_one_than_was_asked_is_not_copied(scripted, tmp_path):
    def other(answering: Answering, part: bytes, headers: dict[str, str]) -> None:
        answering.send(206, part, headers | {"etag": '"other"'})

    def nameless(answering: Answering) -> None:
        answering.send(200, b"weights", {"last-modified": LISTED})

    with pytest.raises(ArtifactUnreachable, match="model was changed while it was copied"):
        await stage_of(tmp_path, scripted(Bucket(b"weights", other)).url).fetch("s3://bucket/model", None)
    with pytest.raises(ArtifactUnreachable, match="gives no ETag of 'model'"):
        await stage_of(tmp_path, scripted(nameless).url).fetch("s3://bucket/model", None)


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (500, (ArtifactUnreachable, "the store answers 500 Some")),
        (401, (ArtifactForbidden, "may not be read or listed with this login: 401 Some")),
        (403, (ArtifactForbidden, "may not be read or listed with this login: 403 Some")),
        (404, (ArtifactUnreachable, "has lost model while it was copied")),
        (412, (ArtifactUnreachable, "model was changed while it was copied")),
        (400, (ArtifactUnreachable, "the store answers 400 Some")),
    ],
)
async def test_what_a_store_refuses_is_said_without_a_login_in_errors_and_logs(
    scripted, tmp_path, caplog, code, refusal
):
    caplog.set_level(logging.DEBUG)
    server = scripted(Bucket(b"weights", *[status(code)] * 9))

    error, said = refusal

    with pytest.raises(error, match=said) as refused:
        await stage_of(tmp_path, server.url).fetch("s3://bucket/model", None)

    for text in (str(refused.value), caplog.text):
        assert SECRET not in text
        assert "somebody" not in text
    assert left_on(tmp_path) == []


@pytest.mark.parametrize("length", [{}, {"content-length": "1000000000000"}])
async def test_a_body_without_an_end_is_cut_off_and_nothing_of_it_stays(scripted, tmp_path, length):
    sent: list[int] = []

    def endless(answering: Answering, _: bytes, headers: dict[str, str]) -> None:
        sent.append(answering.pour(206, b"w" * 65_536, headers | length))

    server = scripted(Bucket(b"weights", *[endless] * 9))

    with pytest.raises(UnderstudyError) as refused:
        await stage_of(tmp_path, server.url).fetch("s3://bucket/model", None)

    assert refused.value.code in ("E212", "E213")
    assert sum(sent) < 100_000_000  # what fits into buffers of the kernel before the caller hangs up
    assert left_on(tmp_path) == []


async def test_a_store_that_hangs_ends_with_the_deadline_of_the_artifact(scripted, tmp_path):
    server = scripted(Bucket(b"weights", lambda answering, _, __: answering.hang()))
    stage = stage_of(tmp_path, server.url, Limits(seconds=0.5), request_seconds=0.7)

    with pytest.raises(ArtifactUnreachable, match=r"it takes longer than 0\.5 s"):
        await stage.fetch("s3://bucket/model", None)
    for thread in threading.enumerate():
        if thread.name == "artifact":
            thread.join(10)

    assert left_on(tmp_path) == []


async def test_a_login_does_not_follow_to_another_server(scripted, tmp_path):
    other = scripted(Bucket(b"weights"))

    def redirect(answering: Answering, _: bytes, __: dict[str, str]) -> None:
        answering.send(307, headers={"location": f"{other.url}/bucket/model"})

    server = scripted(Bucket(b"weights", redirect))
    await stage_of(tmp_path, server.url).fetch("s3://bucket/model", None)

    assert all("authorization" in asked.headers for asked in server.requests)
    assert [asked.headers.get("authorization") for asked in other.requests] == [None]


async def test_without_a_login_it_is_said_which_variables_give_one(tmp_path, monkeypatch, scripted):
    server = scripted(lambda answering: answering.send(404))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", server.url)

    with pytest.raises(ArtifactForbidden, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"):
        await stage_of(tmp_path, server.url).fetch("s3://bucket/model", None)
