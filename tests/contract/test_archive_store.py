"""One behaviour for every place of an archive: in memory, a folder, a bucket of a real S3 server (moto's)."""

import os
from pathlib import Path
from uuid import uuid4

import pytest

from understudy.adapters.archive.open import open_archive
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.memory.archive import MemoryArchive
from understudy.errors import ArchiveDiffers, ArchiveUnavailable
from understudy.ports.prediction_log.archive_store import ArchiveStore

KEY = "predictionlog/model=churn/day=2026-08-01/part-1-1-00000.parquet"
ODD_KEY = "predictionlog/model=a%2Fb ä%3D%25/day=2026-08-01/part-1-1-00000.parquet"


@pytest.fixture(params=["memory", "folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveStore:
    if request.param == "memory":
        return MemoryArchive()
    if request.param == "folder":
        return open_archive(str(tmp_path / "archive"), endpoint=None, timeout_seconds=10)
    endpoint, bucket = request.getfixturevalue("s3_endpoint"), request.getfixturevalue("bucket")
    return open_archive(f"s3://{bucket}/below/this", endpoint=endpoint, timeout_seconds=10)


def a_file(folder: Path, content: bytes) -> Path:
    path = folder / f"source-{uuid4().hex}"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("size", [0, 1, 20 * 1_048_576])
async def test_what_is_stored_is_fetched_byte_for_byte(store, tmp_path, size):
    content = os.urandom(size)
    target = tmp_path / "target"

    await store.put(KEY, a_file(tmp_path, content))

    assert await store.fetch(KEY, target)
    assert target.read_bytes() == content


async def test_a_key_is_stored_as_it_is_whatever_the_model_is_called(store, tmp_path):
    for key in (KEY, ODD_KEY):
        await store.put(key, a_file(tmp_path, key.encode()))

    assert await store.keys() == sorted([KEY, ODD_KEY])
    assert await store.fetch(ODD_KEY, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == ODD_KEY.encode()


async def test_a_second_put_replaces_the_first_one(store, tmp_path):
    for content in (b"long before", b"now"):
        await store.put(KEY, a_file(tmp_path, content))

    await store.fetch(KEY, tmp_path / "target")

    assert (tmp_path / "target").read_bytes() == b"now"
    assert await store.keys() == [KEY]


async def test_what_is_not_there_is_not_fetched(store, tmp_path):
    await store.put(KEY, a_file(tmp_path, b"x"))

    assert not await store.fetch(KEY.replace("00000", "00001"), tmp_path / "target")


async def test_deleting_leaves_the_others_and_bears_being_done_again(store, tmp_path):
    others = [KEY.replace("00000", f"{n:05d}") for n in range(1, 4)]
    for key in [KEY, *others]:
        await store.put(key, a_file(tmp_path, b"x"))

    for _ in range(2):
        await store.delete([KEY, others[0], "predictionlog/never"])

    assert await store.keys() == others[1:]


@pytest.mark.parametrize(
    "key",
    [
        "{folder}/outside", "../outside", "predictionlog/../../outside", "predictionlog/../outside",
        "predictionlog/{folder}/outside", "predictionlog/./x", "predictionlog/..", "predictionlog/", "predictionlog",
        "backups/x", "outside", "",
    ],
)  # fmt: skip
async def test_a_key_that_leads_out_of_the_archive_is_refused_and_reaches_no_file(store, tmp_path, key):
    outside, target = tmp_path / "outside", tmp_path / "target"
    key = key.format(folder=tmp_path)  # whatever a store does with these keys, it reaches nothing but this test's files
    outside.write_bytes(b"another program's")
    await store.put(KEY, a_file(tmp_path, b"x"))

    with pytest.raises(ArchiveDiffers, match="LogArchiveFile"):
        await store.put(key, a_file(tmp_path, b"x"))
    with pytest.raises(ArchiveDiffers, match="leads out"):
        await store.fetch(key, target)
    with pytest.raises(ArchiveDiffers, match="leads out"):
        await store.delete([KEY, key])

    assert outside.read_bytes() == b"another program's"
    assert not target.exists()
    assert await store.keys() == [KEY]


async def test_a_folder_shows_no_reader_a_half_written_file(tmp_path):
    root = tmp_path / "archive"
    store = open_archive(str(root), endpoint=None, timeout_seconds=10)
    half = root / Path(KEY).with_name(f".unfinished-{Path(KEY).name}")
    half.parent.mkdir(parents=True)
    half.write_bytes(b"of a run that was killed")

    assert await store.keys() == []
    await store.put(KEY, a_file(tmp_path, b"whole"))
    assert await store.keys() == [KEY]
    assert [path.name for path in half.parent.iterdir()] == [Path(KEY).name]


async def test_a_folder_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "archive").write_bytes(b"a file, and no folder")
    store = open_archive(str(tmp_path / "archive"), endpoint=None, timeout_seconds=10)

    with pytest.raises(ArchiveUnavailable, match="archive"):
        await store.put(KEY, a_file(tmp_path, b"x"))


async def test_a_bucket_that_is_not_there_or_out_of_reach_is_named_without_any_secret(s3_endpoint, bucket, tmp_path):
    away = f"http://127.0.0.1:{free_port()}"
    for name, endpoint in (("no-such-bucket", s3_endpoint), (bucket, away)):
        store = open_archive(f"s3://{name}", endpoint=endpoint, timeout_seconds=2)
        with pytest.raises(ArchiveUnavailable, match=f"s3://{name}: ") as refused:
            await store.put(KEY, a_file(tmp_path, b"x"))
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(refused.value)
        assert "somebody" not in str(refused.value)


@pytest.mark.parametrize("url", ["s3://", "s3://key:secret@bucket/x", "https://bucket", "s3://bucket?x=1"])
def test_a_url_that_cannot_be_used_is_refused_and_not_repeated(url):
    with pytest.raises(ArchiveUnavailable) as refused:
        open_archive(url, endpoint=None, timeout_seconds=1)

    assert "secret" not in refused.value.detail + refused.value.title
