"""What a version is expected to take of memory, and what is said where there is no room."""

import pytest

from understudy.core.loading.memory import (
    MEBIBYTE,
    PAD_BYTES,
    Room,
    estimated_bytes,
    no_room,
    no_room_after_all,
    taken_bytes,
)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], 0),
        ([("model.onnx", 100 * MEBIBYTE)], 120 * MEBIBYTE),
        ([("1/model.SAFETENSORS", 100 * MEBIBYTE)], 110 * MEBIBYTE),
        ([("model.pkl", 100 * MEBIBYTE), ("saved_model.pb", 10 * MEBIBYTE)], 212 * MEBIBYTE),
    ],
)
def test_files_are_expected_to_take_their_size_times_a_factor_and_something_on_top(files, expected):
    assert estimated_bytes(files) - PAD_BYTES == pytest.approx(expected, abs=1)


def test_what_was_measured_before_is_worth_more_than_files():
    assert estimated_bytes([("model.onnx", 1)], 100 * MEBIBYTE) == 110 * MEBIBYTE


def test_a_loaded_version_takes_what_the_process_grew_by_or_its_files_where_it_reuses_memory():
    files = [("model.onnx", 100 * MEBIBYTE)]

    assert taken_bytes(files, 50 * MEBIBYTE, 190 * MEBIBYTE) == 140 * MEBIBYTE
    assert taken_bytes(files, 190 * MEBIBYTE, 191 * MEBIBYTE) == 100 * MEBIBYTE
    assert taken_bytes(files, None, 190 * MEBIBYTE) == estimated_bytes(files)


def test_a_tenth_of_a_servers_memory_stays_free():
    room = Room(1_000 * MEBIBYTE, own_bytes=100 * MEBIBYTE, versions_bytes=700 * MEBIBYTE, versions=3)

    assert room.free_bytes == 100 * MEBIBYTE
    assert no_room(100 * MEBIBYTE, room, was_measured=False) is None
    assert no_room(100 * MEBIBYTE + 1, room, was_measured=True) == (
        "it needs some 100 MiB of memory (measured at its last load), and 100 MiB are left: of 1,000 MiB 90% may be"
        " taken, and 700 MiB are by 3 versions, 100 MiB by the server itself"
    )


def test_a_version_that_takes_more_than_was_left_is_told_by_how_many_times_it_is_more_than_expected():
    room = Room(1_000 * MEBIBYTE, versions_bytes=700 * MEBIBYTE, versions=3)

    assert no_room_after_all(200 * MEBIBYTE, 60 * MEBIBYTE, room) is None
    assert no_room_after_all(240 * MEBIBYTE, 80 * MEBIBYTE, room) == (
        "loaded it takes 240 MiB of memory, 3 times the 80 MiB that were expected, and 200 MiB are left: of 1,000 MiB"
        " 90% may be taken, and 700 MiB are by 3 versions"
    )


def test_more_than_there_is_leaves_nothing():
    assert Room(MEBIBYTE, versions_bytes=5 * MEBIBYTE, versions=1).free_bytes == 0
