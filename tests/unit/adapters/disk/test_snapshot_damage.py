"""The policy snapshot after a power cut, or with a damaged byte: a document that was written, or none."""

import errno
import os
from random import Random

import orjson
import pytest
from builders import a_version_row, policy_rows
from failing.power_cut import RecordedFiles
from structlog.testing import capture_logs
from traffic.chance import seed

from understudy.adapters.disk.snapshot_file import JsonSnapshotFile

KEY = {"id": "k1", "sha256": "ab" * 32, "scopes": ["predict"]}
POWER_CUTS = 400


def a_document(number: int) -> dict[str, object]:
    versions = [a_version_row("1")]
    models = {name: policy_rows(versions=versions, generation=number) for name in ("churn", "visits")}
    return {"models": models, "keys": [KEY]}


@pytest.mark.deep
def test_whatever_a_power_cut_leaves_is_the_newest_document_that_was_written_or_a_later_one(tmp_path):
    dice, volume = Random(seed()), tmp_path / "volume"
    volume.mkdir()
    files = RecordedFiles(volume)
    documents = [a_document(number) for number in range(5)]
    written_at = []
    for document in documents:
        JsonSnapshotFile(volume / "policy.json", files=files).write(document)
        written_at.append(len(files.events))

    for number in range(POWER_CUTS):
        moment = dice.randrange(len(files.events) + 1)
        files.after_power_cut(moment, dice, tmp_path / str(number))
        found = JsonSnapshotFile(tmp_path / str(number) / "policy.json").read()

        written = sum(end <= moment for end in written_at)
        assert found in ([*documents[written - 1 :]] if written else [None, *documents]), moment


@pytest.mark.deep
@pytest.mark.parametrize("damage", ["cut", "flip", "zero"])
def test_whichever_byte_of_the_last_two_records_is_damaged_no_other_policy_is_read(tmp_path, damage):
    path, document = tmp_path / "policy.json", a_document(10)
    JsonSnapshotFile(path).write(document)
    whole = path.read_bytes()

    invented = []
    with capture_logs():  # one line for each file that cannot be read
        for place in range(whole.index(b'"churn"'), len(whole)):
            flipped = bytes([whole[place] ^ 1]) + whole[place + 1 :]
            rest = {"cut": b"", "flip": flipped, "zero": bytes(len(whole) - place)}
            path.write_bytes(whole[:place] + rest[damage])
            found = JsonSnapshotFile(path).read()
            if found is not None and {name: found.get(name) for name in document} != document:
                invented.append(place)

    assert invented == []


def test_a_file_of_an_earlier_release_which_has_no_digest_is_read(tmp_path):
    path, document = tmp_path / "policy.json", a_document(10)
    path.write_bytes(orjson.dumps(document))

    assert JsonSnapshotFile(path).read() == document


def test_a_full_disk_leaves_the_document_that_was_there_and_nothing_beside_it(tmp_path):
    class FullFiles(RecordedFiles):
        def write(self, file: int, block: bytes) -> int:  # type: ignore[override]
            if os.fstat(file).st_size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return os.write(file, block[:20])

    path, failures = tmp_path / "policy.json", list[int]()
    JsonSnapshotFile(path).write(a_document(1))

    JsonSnapshotFile(path, lambda: failures.append(1), files=FullFiles(tmp_path)).write(a_document(2))

    assert JsonSnapshotFile(path).read() == a_document(1)
    assert failures == [1]
    assert [file.name for file in tmp_path.iterdir()] == ["policy.json"]
