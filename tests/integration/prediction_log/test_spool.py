"""The spool on a real disk: torn and damaged files, several workers, a full disk, kill -9."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from failing.files import FailingFiles
from traffic.spooled_rows import a_prediction_id, a_row, ids_in

from understudy.adapters.disk.spool import Spool
from understudy.core.prediction_log.row import COLUMNS
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.prediction_log.row_record import FIELDS, NO_FIELDS, record_bytes
from understudy.core.prediction_log.spool_format import encode_row
from understudy.ports.prediction_log.prediction_log import SpooledBatch, SpoolReader

LARGE = 1_048_576


@contextmanager
def a_spool(directory: Path, **given: Any) -> Iterator[Spool]:
    spool = Spool(directory, **{"limit_bytes": LARGE, "segment_bytes": LARGE, "sync_seconds": 0.01, **given})
    try:
        yield spool
    finally:
        spool.close()


def read_all(reader: SpoolReader) -> list[SpooledBatch]:
    batches: list[SpooledBatch] = []
    place = (0, 0)
    while (batch := reader.read_from(*place, 100, LARGE)) is not None:
        batches.append(batch)
        place = (batch.segment, batch.end)
    return batches


def good_ids(batches: list[SpooledBatch]) -> list[str]:
    return ids_in(row for batch in batches if not batch.damage for row in batch.rows)


def only_segment(directory: Path) -> Path:
    (segment,) = directory.glob("*/*.log")
    return segment


def test_the_next_worker_adopts_what_the_last_one_left(tmp_path):
    with a_spool(tmp_path) as first:
        first.append(a_row(1))

    with a_spool(tmp_path) as second:
        second.append(a_row(2))

        assert second.own.spool_id == first.own.spool_id
        assert good_ids(read_all(second.own)) == [a_prediction_id(1), a_prediction_id(2)]
        assert second.own.unshipped_bytes >= 2 * len(encode_row(a_row(1)))


@pytest.mark.parametrize("before", [0, 1])
def test_a_row_that_comes_after_the_end_is_dropped_and_counted_and_not_given_to_whoever_has_the_spool_next(
    tmp_path, before
):
    dropped: list[int] = []
    with a_spool(tmp_path, on_drop=lambda: dropped.append(1)) as first:
        for number in range(before):
            first.append(a_row(number))

    with a_spool(tmp_path) as second:
        assert not first.append(a_row(2))

        assert dropped == [1]
        assert good_ids(read_all(second.own)) == [a_prediction_id(number) for number in range(before)]


def test_workers_at_the_same_time_have_different_spools(tmp_path):
    with a_spool(tmp_path) as one, a_spool(tmp_path) as other:
        assert one.own.spool_id != other.own.spool_id
        assert list(one.orphans()) == []


def test_workers_that_start_and_look_for_orphans_all_at_once_never_share_or_lose_a_spool(tmp_path):
    spools: list[Spool] = []
    problems: list[BaseException] = []
    everybody = threading.Barrier(8)

    def work() -> None:
        try:
            everybody.wait()
            for _ in range(10):
                spool = Spool(tmp_path, limit_bytes=LARGE, segment_bytes=LARGE, sync_seconds=5)
                spools.append(spool)
                for orphan in spool.orphans():
                    assert orphan.spool_id != spool.own.spool_id
                assert spool.append(a_row(1))
                assert len(good_ids(read_all(spool.own))) >= 1
        except BaseException as problem:  # noqa: BLE001 - a thread's failure is asserted below
            problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert problems == []
    assert len({spool.own.spool_id for spool in spools}) == 80
    for spool in spools:
        spool.close()


def test_a_copy_that_an_operator_made_of_a_spool_is_not_shipped_adopted_or_removed(tmp_path):
    with a_spool(tmp_path) as spool:
        spool.append(a_row(1))
        folder = spool.own.folder
    copy = folder.with_name(f"{folder.name}.bak")
    shutil.copytree(folder, copy)

    with a_spool(tmp_path) as adopter, a_spool(tmp_path) as another:
        adopted = {adopter.own.folder, another.own.folder}
        shipped = [good_ids(read_all(orphan)) for orphan in another.orphans()]

    assert copy not in adopted
    assert shipped == []
    assert len(list(copy.glob("*.log"))) == 1


@pytest.mark.parametrize("name", ["99999999999999999999999", "9223372036854775807", "1" * 16, "7", "٣" * 12])
def test_a_file_that_no_spool_can_have_written_holds_up_no_row_and_stays_as_it_was(tmp_path, name):
    with a_spool(tmp_path) as first:
        first.append(a_row(1))
    stray = first.own.folder / f"{name}.log"
    stray.write_bytes(b"no segment")

    with a_spool(tmp_path) as second:
        second.append(a_row(2))
        batches = read_all(second.own)

    assert second.own.spool_id == first.own.spool_id
    assert good_ids(batches) == [a_prediction_id(1), a_prediction_id(2)]
    assert max(batch.segment for batch in batches) < 2**40
    assert stray.read_bytes() == b"no segment"


@pytest.mark.parametrize("number", [10**12, 10**15 - 1])
def test_a_segment_numbered_far_beyond_the_clock_is_shipped_as_an_orphan_and_no_worker_goes_on_behind_it(
    tmp_path, number
):
    with a_spool(tmp_path) as first:
        first.append(a_row(1))
    segment = only_segment(tmp_path)
    segment.rename(segment.with_name(f"{number}.log"))

    with a_spool(tmp_path) as second:
        second.append(a_row(2))
        (orphan,) = second.orphans()

        assert second.own.spool_id != first.own.spool_id
        assert good_ids(read_all(second.own)) == [a_prediction_id(2)]
        assert second.own.newest < 2**40
    assert orphan.spool_id == first.own.spool_id


def test_an_orphan_is_removed_once_its_rows_are_forgotten_and_not_before(tmp_path):
    with a_spool(tmp_path) as one, a_spool(tmp_path) as other:
        other.append(a_row(1))
        other.close()

        for orphan in one.orphans():
            (batch,) = read_all(orphan)
        left = [orphan.spool_id for orphan in one.orphans()]
        for orphan in one.orphans():
            orphan.forget(batch.segment, batch.end)

        assert left == [other.own.spool_id]
        assert [path.name for path in tmp_path.iterdir()] == [one.own.spool_id]


def test_a_torn_last_row_is_passed_over_and_new_rows_follow_it(tmp_path):
    with a_spool(tmp_path) as first:
        first.append(a_row(1))
        first.append(a_row(2))
    segment = only_segment(tmp_path)
    os.truncate(segment, segment.stat().st_size - 5)

    with a_spool(tmp_path) as second:
        second.append(a_row(3))
        batches = read_all(second.own)

    assert good_ids(batches) == [a_prediction_id(1), a_prediction_id(3)]
    assert [batch for batch in batches if batch.damage] == []


@pytest.mark.parametrize("max_bytes", [1, LARGE])
def test_behind_each_row_of_a_write_a_shipper_can_go_on(tmp_path, max_bytes):
    with a_spool(tmp_path) as spool:
        for start in (0, 5, 10):
            spool.append_all([a_row(number) for number in range(start, start + 5)])
        (whole,) = read_all(spool.own)

        for number, place in enumerate(whole.ends, 1):
            rest = spool.own.read_from(whole.segment, place, 100, max_bytes)
            assert (rest is None) == (number == 15)
            if rest is not None:
                assert rest == whole.part(number, number + len(rest.rows))
                assert rest.end == whole.end or max_bytes == 1
        assert read_all(spool.own) == [whole]


def test_a_damaged_row_is_handed_over_as_damage_between_its_neighbours(tmp_path):
    with a_spool(tmp_path) as first:
        for number in range(4):
            first.append(a_row(number))
    frame = len(encode_row(a_row(1)))
    content = bytearray(only_segment(tmp_path).read_bytes())
    content[-2 * frame - 20] ^= 1
    only_segment(tmp_path).write_bytes(content)

    with a_spool(tmp_path) as second:
        batches = read_all(second.own)

    assert [bool(batch.damage) for batch in batches] == [False, True, False]
    assert good_ids(batches) == [a_prediction_id(number) for number in (0, 2, 3)]
    assert "damaged" in batches[1].damage
    assert batches[1].rows[1] == bytes(content[batches[1].ends[0] : batches[1].end])
    assert (batches[0].end, batches[1].end) == (batches[1].start, batches[2].start)


@pytest.mark.parametrize("place", ["length", "checksum", "records", "the second line", "the last line feed"])
@pytest.mark.parametrize("is_last", [False, True])
def test_of_a_damaged_write_each_row_is_a_letter_of_its_own_in_which_its_entity_is_found(tmp_path, place, is_last):
    with a_spool(tmp_path) as first:
        for start in (0, 3, 6):
            first.append_all([a_row(number) for number in range(start, start + 3)])
    content = bytearray(only_segment(tmp_path).read_bytes())
    hit = 2 if is_last else 1
    lines = [encode_line(a_row(number)) for number in range(3 * hit, 3 * hit + 3)]
    text = content.index(b"".join(lines))
    frame = content.rindex(b"\n", 0, text - 3 * record_bytes(FIELDS) - 12) + 1
    second_line = text + len(lines[0]) + 3
    places = {"length": frame, "checksum": frame + 5, "records": frame + 40, "the second line": second_line}
    content[places.get(place, text + len(b"".join(lines)) - 1)] ^= 0x80
    only_segment(tmp_path).write_bytes(content)

    with a_spool(tmp_path) as second:
        batches = read_all(second.own)

    (damaged,) = [batch for batch in batches if batch.damage]
    assert good_ids(batches) == [a_prediction_id(number) for number in range(9) if number // 3 != hit]
    entities = [letter.split(b"\t")[4].decode() for letter in damaged.rows[1:]]
    assert entities == [f"user-{3 * hit + number}" for number in range(3)]
    assert len(damaged.rows[0]) == 12, "what stands before the records"
    assert [batch.start for batch in batches[1:]] == [batch.end for batch in batches[:-1]]


def test_a_segment_whose_header_is_damaged_is_handed_over_whole(tmp_path):
    with a_spool(tmp_path) as first:
        first.append(a_row(1))
    content = bytearray(only_segment(tmp_path).read_bytes())
    content[20] ^= 1
    only_segment(tmp_path).write_bytes(content)

    with a_spool(tmp_path) as second:
        second.append(a_row(2))
        batches = read_all(second.own)

    assert batches[0].rows == [bytes(content)]
    assert "header" in batches[0].damage
    assert good_ids(batches) == [a_prediction_id(2)]


def test_a_spool_of_a_newer_format_is_left_alone(tmp_path):
    with a_spool(tmp_path) as newer:
        newer.append(a_row(1))
    payload = b'{"format":4,"columns":["x"]}\n'
    body = encode_row(a_row(1))
    only_segment(tmp_path).write_bytes(framed(payload) + body)
    before = only_segment(tmp_path).read_bytes()

    with a_spool(tmp_path) as spool:
        orphans = [orphan.spool_id for orphan in spool.orphans()]

        assert spool.own.spool_id != newer.own.spool_id
    assert orphans == []
    assert (tmp_path / newer.own.spool_id).exists()
    assert only_segment(tmp_path).read_bytes() == before


def test_a_spool_of_the_release_before_whose_rows_have_no_records_is_shipped_and_gone_on_in(tmp_path):
    with a_spool(tmp_path) as older:
        older.append(a_row(1))
    header = b'{"format":1,"columns":["%b"]}\n' % '","'.join(COLUMNS).encode()
    only_segment(tmp_path).write_bytes(framed(header) + framed(encode_line(a_row(1))) + framed(encode_line(a_row(2))))

    with a_spool(tmp_path) as spool:
        spool.append(a_row(3))
        batches = read_all(spool.own)

        assert spool.own.spool_id == older.own.spool_id
    assert [batch.rows for batch in batches] == [
        [encode_line(a_row(1)), encode_line(a_row(2))],
        [encode_line(a_row(3))],
    ]
    assert [batch.records.fields for batch in batches] == [NO_FIELDS, FIELDS]


def framed(payload: bytes) -> bytes:
    from struct import pack  # noqa: PLC0415 - written out here to be independent of the encoder
    from zlib import crc32  # noqa: PLC0415

    return pack("<II", len(payload), crc32(payload, len(payload))) + payload


def test_segments_that_are_forgotten_are_deleted_and_numbers_are_never_used_again(tmp_path):
    with a_spool(tmp_path, segment_bytes=500) as first:
        for number in range(6):
            first.append(a_row(number))
        last = read_all(first.own)[-1]
        first.own.forget(last.segment, last.end)
        left = list(tmp_path.glob("*/*.log"))

    with a_spool(tmp_path) as second:
        second.append(a_row(7))
        batch = second.own.read_from(last.segment, last.end, 10, LARGE)

    assert len(left) == 1
    assert batch is not None
    assert batch.segment > last.segment
    assert good_ids([batch]) == [a_prediction_id(7)]


def test_what_waits_behind_a_segment_that_was_emptied_before_is_still_said_to_wait(tmp_path):
    with a_spool(tmp_path) as first:
        for number in range(6):
            first.append(a_row(number))
        shipped = read_all(first.own)[-1]
    with a_spool(tmp_path) as second:
        second.own.forget(shipped.segment, shipped.end)
        second.append(a_row(7))
        waiting = second.own.unshipped_bytes

    with a_spool(tmp_path) as third:
        third.own.forget(shipped.segment, shipped.end)
        left = third.own.unshipped_bytes

    assert waiting >= len(encode_row(a_row(7)))
    assert left == waiting


APPENDER = """
import sys
from pathlib import Path
from traffic.spooled_rows import a_row
from understudy.adapters.disk.spool import Spool

spool = Spool(Path(sys.argv[1]), limit_bytes=1 << 30, segment_bytes=int(sys.argv[2]), sync_seconds=0.01)
number = 0
while number < int(sys.argv[3]):
    kept = spool.append(a_row(number))
    print(number, int(kept), flush=True)
    number += 1
"""


def appender(directory: Path, segment_bytes: int, rows: int, **given: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", APPENDER, str(directory), str(segment_bytes), str(rows)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, **given)


def kept_numbers(output: bytes) -> list[int]:
    # A line that the kill cut off proves nothing about its row.
    lines = output[: output.rfind(b"\n") + 1].splitlines()
    return [int(number) for number, kept in map(bytes.split, lines) if kept == b"1"]


def test_every_row_whose_append_returned_survives_kill_9(tmp_path):
    process = appender(tmp_path, 20_000, 1_000_000)
    assert process.stdout is not None

    seen = process.stdout.read(20_000)
    process.send_signal(signal.SIGKILL)
    seen += process.stdout.read()
    process.wait(10)
    process.stdout.close()
    with a_spool(tmp_path) as spool:
        batches = read_all(spool.own)

    found = good_ids(batches)
    kept = [a_prediction_id(number) for number in kept_numbers(seen)]
    assert len(kept) > 1_000
    assert found[: len(kept)] == kept
    assert len(found) <= len(kept) + 1
    assert not any(batch.damage for batch in batches)


def test_on_a_full_disk_rows_are_dropped_and_none_is_torn(tmp_path):
    with a_spool(tmp_path, files=FailingFiles(room=5_000), reserve_bytes=1 << 20) as spool:
        kept = [number for number in range(50) if spool.append(a_row(number))]
        batches = read_all(spool.own)

    assert 5 < len(kept) < 50
    assert good_ids(batches) == [a_prediction_id(number) for number in kept]
    assert only_segment(tmp_path).stat().st_size == batches[-1].end, "what was cut short is gone again"


@pytest.mark.parametrize("disk", ["can be cut", "cannot be cut"])
def test_rows_of_a_write_that_a_full_disk_cuts_short_are_tried_one_by_one_and_none_comes_twice(tmp_path, disk):
    files = FailingFiles(room=5_000, refused=["cut"] if disk == "cannot be cut" else [])
    dropped: list[int] = []
    places: list[int] = []

    with a_spool(tmp_path, files=files, reserve_bytes=1 << 20, on_drop=lambda: dropped.append(1)) as spool:
        for first in range(0, 48, 6):
            left_out = spool.append_all([a_row(number) for number in range(first, first + 6)])
            places += [first + place for place in left_out]
        batches = read_all(spool.own)

    found = good_ids(batches)
    assert 6 < len(found) < 24
    assert found == [a_prediction_id(number) for number in range(48) if number not in places]
    assert len(found) + len(dropped) == 48
    assert not any(batch.damage for batch in batches)


def test_a_segment_that_a_full_disk_cannot_add_to_is_followed_by_another_one_when_there_is_room(tmp_path):
    files = FailingFiles(room=3_000)
    with a_spool(tmp_path, files=files, reserve_bytes=1 << 20) as spool:
        kept = [number for number in range(20) if spool.append(a_row(number))]
        files.room = LARGE
        later = wait_for(lambda: spool.append(a_row(99)))
        batches = read_all(spool.own)

    assert later
    assert good_ids(batches) == [*map(a_prediction_id, kept), a_prediction_id(99)]
    assert len(list(tmp_path.glob("*/*.log"))) == 2, "no attempt leaves an empty segment"


def test_a_segment_at_the_longest_size_that_a_process_may_write_is_followed_by_another_one(tmp_path):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6_500, 6_500))

    process = appender(tmp_path, LARGE, 50, preexec_fn=limit)
    output, _ = process.communicate(timeout=60)
    with a_spool(tmp_path) as spool:
        batches = read_all(spool.own)

    assert process.returncode == 0
    assert kept_numbers(output) == list(range(50))
    assert good_ids(batches) == list(map(a_prediction_id, range(50)))
    assert len({batch.segment for batch in batches}) == 3


def test_rows_are_given_on_although_nothing_can_be_deleted_and_that_is_counted(tmp_path):
    failures: list[str] = []
    files = FailingFiles(refused=["delete"])
    with a_spool(tmp_path, files=files, segment_bytes=500, on_failure=failures.append) as spool:
        for number in range(6):
            spool.append(a_row(number))
        batches = read_all(spool.own)
        for batch in batches:
            spool.own.forget(batch.segment, batch.end)
        sizes = [path.stat().st_size for path in sorted(tmp_path.glob("*/*.log"))]

    assert good_ids(batches) == list(map(a_prediction_id, range(6)))
    assert "delete" in failures
    assert [size > 0 for size in sizes] == [False] * (len(sizes) - 1) + [True], "what cannot be deleted is emptied"


def wait_for(is_done: Callable[[], bool], seconds: float = 10.0) -> bool:
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        if is_done():
            return True
        time.sleep(0.01)
    return False


def test_a_sync_that_is_asked_for_says_when_the_rows_that_were_written_are_on_the_disk(tmp_path):
    files = CountedSyncs()
    with a_spool(tmp_path, files=files, sync_seconds=60) as spool:
        files.count = 0
        for number in range(3):
            spool.append(a_row(number))
        said = synced(spool)
        syncs = files.count

    assert said
    assert syncs >= 1


def test_a_sync_that_fails_is_said_and_counted_and_later_rows_go_to_another_segment(tmp_path):
    failures: list[str] = []
    files = FailingFiles()
    with a_spool(tmp_path, files=files, sync_seconds=60, on_failure=failures.append) as spool:
        spool.append(a_row(1))
        files.refused = {"sync"}
        failed = synced(spool)
        files.refused = set()
        spool.append(a_row(2))
        later = synced(spool)
        batches = read_all(spool.own)

    assert (failed, later) == (False, True)
    assert failures == ["sync"]
    assert good_ids(batches) == [a_prediction_id(1), a_prediction_id(2)]
    assert len({batch.segment for batch in batches}) == 2


class HeldSync(FailingFiles):
    """A disk whose next sync fails when it is let go. The kernel tells an error once: later syncs succeed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held = threading.Event()
        self.go: threading.Event | None = None

    def sync(self, file: int) -> None:
        go, self.go = self.go, None
        if go is not None:
            self.is_held.set()
            go.wait(10)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(file)


def test_rows_written_while_a_sync_fails_are_not_said_to_be_on_the_disk_by_the_next_one(tmp_path):
    files, during, said = HeldSync(), threading.Event(), list[tuple[int, bool]]()
    with a_spool(tmp_path, files=files, sync_seconds=60) as spool:
        spool.append(a_row(1))
        files.go = during
        spool.sync(lambda is_synced: said.append((1, is_synced)))
        assert files.is_held.wait(10)
        spool.append(a_row(2))
        spool.sync(lambda is_synced: said.append((2, is_synced)))
        during.set()
        assert wait_for(lambda: len(said) == 2)
        spool.append(a_row(3))
        later = synced(spool)

    assert said == [(1, False), (2, False)]
    assert later


class CountedSyncs(FailingFiles):
    """A disk that counts the syncs of files."""

    count = 0

    def sync(self, file: int) -> None:
        self.count += 1
        super().sync(file)


def synced(spool: Spool) -> bool:
    """Sync the spool and return what it says."""
    said: list[bool] = []
    spool.sync(said.append)
    assert wait_for(lambda: bool(said))
    return said[0]
