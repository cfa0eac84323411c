"""Segments of a spool that can be read although their names are gone."""

import os
from pathlib import Path

from understudy.adapters.disk.segment_descriptors import MAX_HELD, SegmentDescriptors


def a_folder(path: Path, *names: str) -> SegmentDescriptors:
    for name in names:
        (path / name).write_bytes(name.encode())
    return SegmentDescriptors(path)


def content(segments: SegmentDescriptors, number: int) -> bytes | None:
    with segments.opened(number) as segment:
        return None if segment is None else os.pread(segment, 100, 0)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_only_files_whose_names_a_spool_can_have_written_are_segments(tmp_path):
    segments = a_folder(
        tmp_path, "000000000007.log", "1000000000000.log", "0000000000007.log", "7.log", "copy.log", "000000000008.txt"
    )

    assert segments.numbers() == [7, 10**12]
    assert 7 in segments
    assert 8 not in segments


def test_a_held_segment_is_read_and_has_a_size_although_its_name_is_gone(tmp_path):
    segments = a_folder(tmp_path, "000000000007.log", "000000000008.log")
    segments.hold()
    segments.close(8)

    segments.path(7).unlink()
    segments.path(8).unlink()

    assert (content(segments, 7), segments.size(7)) == (b"000000000007.log", 16)
    assert (content(segments, 8), segments.size(8)) == (None, 0)
    assert segments.numbers() == [7, 8], "what was closed keeps its number"
    segments.close_all()


def test_no_more_segments_are_held_than_descriptors_are_meant_for(tmp_path):
    segments = a_folder(tmp_path, *(f"{number:012d}.log" for number in range(MAX_HELD)))
    segments.hold()
    last = os.open(segments.path(0), os.O_RDONLY)
    before = open_descriptors()

    segments.add(MAX_HELD, last)

    assert open_descriptors() == before
    assert segments.numbers()[-1] == MAX_HELD
    os.close(last)
    segments.close_all()


def test_a_discarded_segment_is_open_until_the_turn_that_may_read_it_is_over(tmp_path):
    segments = a_folder(tmp_path, "000000000007.log")
    before = open_descriptors()
    segments.hold()

    with segments.opened(7) as segment:
        segments.discard(7)
        assert 7 not in segments
        assert segment is not None
        assert os.pread(segment, 3, 0) == b"000"
    assert open_descriptors() == before + 1
    segments.close_discarded()

    assert open_descriptors() == before


def test_at_the_end_no_descriptor_is_left(tmp_path):
    before = open_descriptors()
    segments = a_folder(tmp_path, "000000000007.log", "000000000008.log", "000000000009.log")
    segments.hold()
    segments.discard(7)
    segments.remove(8)

    segments.close_all()

    assert open_descriptors() == before
    assert segments.numbers() == []
