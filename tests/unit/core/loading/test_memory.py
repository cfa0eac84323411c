"""What a version is expected to take of memory, and what is said where there is no room."""

import pytest

from understudy.core.loading.memory import (
    MEBIBYTE,
    PAD_BYTES,
    PADS,
    ProcessUse,
    Room,
    StagedFile,
    estimated_bytes,
    no_room,
    no_room_after_all,
    residue_bytes,
    seen_since_start,
    taken_bytes,
)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], 0),
        ([("model.onnx", 100 * MEBIBYTE)], 200 * MEBIBYTE),
        ([("model.onnx", 100 * MEBIBYTE, 90 * MEBIBYTE)], 1_190 * MEBIBYTE),
        ([("1/model.SAFETENSORS", 100 * MEBIBYTE)], 110 * MEBIBYTE),
        ([("model.pkl", 100 * MEBIBYTE), ("saved_model.pb", 10 * MEBIBYTE)], 212 * MEBIBYTE),
        ([("1/variables/variables.data-00000-of-00001", 100 * MEBIBYTE)], 120 * MEBIBYTE),
        ([("variables", 100 * MEBIBYTE)], 200 * MEBIBYTE),
    ],
)
def test_files_are_expected_to_take_their_size_times_a_factor_and_something_on_top(files, expected):
    listed = [StagedFile(*file) for file in files]

    assert estimated_bytes(listed) - PAD_BYTES == pytest.approx(expected, abs=1)
    assert estimated_bytes(listed, pad_bytes=PADS["mlserver"]) - PADS["mlserver"] == pytest.approx(expected, abs=1)


def test_what_was_measured_before_is_worth_more_than_files():
    assert estimated_bytes([StagedFile("model.onnx", 1)], 100 * MEBIBYTE) == 110 * MEBIBYTE


def test_a_loaded_version_takes_what_the_process_grew_by_or_its_files_where_it_reuses_memory():
    files = [StagedFile("model.onnx", 100 * MEBIBYTE)]

    assert taken_bytes(files, 50 * MEBIBYTE, 190 * MEBIBYTE) == 140 * MEBIBYTE
    assert taken_bytes(files, 190 * MEBIBYTE, 191 * MEBIBYTE) == 100 * MEBIBYTE
    assert taken_bytes(files, None, 190 * MEBIBYTE) == estimated_bytes(files)


def test_a_version_that_is_loaded_again_into_memory_that_it_left_takes_no_less_than_at_its_last_load():
    files = [StagedFile("model.onnx", 100 * MEBIBYTE)]

    assert taken_bytes(files, 190 * MEBIBYTE, 191 * MEBIBYTE, 140 * MEBIBYTE) == 140 * MEBIBYTE
    assert taken_bytes(files, 50 * MEBIBYTE, 200 * MEBIBYTE, 140 * MEBIBYTE) == 150 * MEBIBYTE


def residues(*looks: tuple[int, int], started: str = "first") -> list[int]:
    """Return the residue in MiB after each look at a process and its versions."""
    seen, found = None, []
    for resident, versions in looks:
        use = ProcessUse(resident * MEBIBYTE, started)
        seen = seen_since_start(seen, use, versions * MEBIBYTE)
        found.append(residue_bytes(seen, use) // MEBIBYTE)
    return found


def test_memory_that_the_next_version_reuses_is_no_residue():
    # By itself; with a version of 200; without it, nothing given back; with another one.
    assert residues((100, 0), (300, 200), (300, 0), (300, 150)) == [0, 0, 0, 0]


def test_what_each_load_leaves_behind_is_residue_once_it_is_more_than_versions_ever_took():
    loads = [look for leaked in range(0, 500, 100) for look in ((100 + leaked + 200, 200), (100 + leaked, 0))]

    assert residues((100, 0), *loads) == [0, 0, 0, 100, 0, 200, 0, 300, 100, 400, 200]


def test_what_a_process_took_before_it_was_started_anew_says_nothing():
    old, new = ProcessUse(100 * MEBIBYTE, "first"), ProcessUse(400 * MEBIBYTE, "second")

    seen = seen_since_start(seen_since_start(None, old, 0), new, 0)

    assert seen.own_bytes == 400 * MEBIBYTE
    assert residue_bytes(seen, new) == 0


def test_a_tenth_of_a_servers_memory_stays_free():
    room = Room(1_000 * MEBIBYTE, own_bytes=100 * MEBIBYTE, versions_bytes=700 * MEBIBYTE, versions=3)

    assert room.free_bytes == 100 * MEBIBYTE
    assert no_room(100 * MEBIBYTE, room, was_measured=False) is None
    assert no_room(100 * MEBIBYTE + 1, room, was_measured=True) == (
        "it needs some 101 MiB of memory (measured at its last load), and 100 MiB are left: of 1,000 MiB 90% may be"
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
