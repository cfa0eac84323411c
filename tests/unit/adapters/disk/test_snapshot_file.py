import os
import stat
import time
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from builders import a_version_row, policy_rows

from understudy.adapters.disk.snapshot_file import JsonSnapshotFile
from understudy.core.routing.policy import PolicySnapshot
from understudy.core.routing.policy_document import apply_document

KEY = {"id": "k1", "sha256": "ab" * 32, "scopes": ["predict"]}


class Failures:
    """Counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_what_is_written_is_read_again(tmp_path):
    failures = Failures()
    file = JsonSnapshotFile(tmp_path / "state" / "policy.json", failures)
    document = {"models": {"visits": policy_rows()}, "keys": [KEY]}

    file.write(document)

    assert file.read() == document
    assert failures.count == 0


def test_the_file_is_its_owners_alone_also_where_an_older_one_was_everybodys(tmp_path):
    path = tmp_path / "policy.json"
    left = tmp_path / f"policy.json.{os.getpid()}.new"
    for older in (path, left):
        older.write_text("{}")
        older.chmod(0o666)
    before = os.umask(0)
    try:
        JsonSnapshotFile(path).write({"models": {}, "keys": [KEY], "cache_secret": "ab" * 32})
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not left.exists()


@pytest.mark.deep
def test_many_models_are_written_with_pauses_for_whoever_else_computes(tmp_path):
    file = JsonSnapshotFile(tmp_path / "policy.json")
    models = {f"model-{number}": MappingProxyType(policy_rows()) for number in range(1_000)}
    began, computed = time.monotonic(), time.thread_time()

    file.write({"models": models, "keys": []})

    rested = time.monotonic() - began - (time.thread_time() - computed)
    assert (file.read() or {})["models"].keys() == models.keys()
    assert rested >= 1_000 // 25 * 0.001


class CountedRows(UserDict[str, Any]):
    """A model's rows, which count how often they are read to be encoded."""

    encoded = 0

    def __iter__(self) -> Iterator[str]:
        self.encoded += 1
        return super().__iter__()


def test_only_models_whose_rows_changed_are_encoded_again(tmp_path):
    file = JsonSnapshotFile(tmp_path / "policy.json")
    same, before, after, gone = (CountedRows(policy_rows(generation=number)) for number in range(1, 5))
    file.write({"models": {"same": same, "changed": before, "gone": gone}, "keys": []})

    file.write({"models": {"same": same, "changed": after}, "keys": [KEY]})

    assert [rows.encoded for rows in (same, before, after, gone)] == [1, 1, 1, 1]
    assert file.read() == {"models": {"same": same.data, "changed": after.data}, "keys": [KEY]}


def test_a_model_nested_too_deep_to_be_written_is_left_out_and_counted(tmp_path):
    failures = Failures()
    file = JsonSnapshotFile(tmp_path / "policy.json", failures)
    deep = policy_rows(versions=[a_version_row("1", backend={"deep": nested(300)})])

    file.write({"models": {"deep": deep, "visits": policy_rows()}, "keys": [KEY]})

    assert file.read() == {"models": {"visits": policy_rows()}, "keys": [KEY]}
    assert failures.count == 1


def test_whatever_keeps_it_from_writing_is_counted_and_leaves_the_document_that_was_there(tmp_path: Path):
    path = tmp_path / "policy.json"
    good = {"models": {"visits": policy_rows()}, "keys": []}
    unwritable: list[Any] = [{"models": {}, "keys": nested(300)}, {"models": {}, "keys": object()}, {"models": 5}]
    JsonSnapshotFile(path).write(good)
    failures = Failures()
    (tmp_path / "file").touch()

    for document in unwritable:
        JsonSnapshotFile(path, failures).write(document)
    JsonSnapshotFile(tmp_path / "file" / "policy.json", failures).write(good)

    assert failures.count == 4
    assert JsonSnapshotFile(path).read() == good


def test_whatever_models_and_keys_a_file_holds_it_can_be_applied(tmp_path):
    path = tmp_path / "policy.json"
    for text in ('{"models": {"visits": 5}, "keys": 5}', '{"models": {"visits": {"policy": []}}, "keys": [5, {}]}'):
        path.write_text(text)
        document = JsonSnapshotFile(path).read()
        assert document is not None

        snapshot = apply_document(PolicySnapshot(), document, complete=True)

        assert (set(snapshot.policies), set(snapshot.rejected), snapshot.keys) == (set(), {"visits"}, {})
