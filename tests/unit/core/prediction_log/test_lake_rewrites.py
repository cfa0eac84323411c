from hypothesis import given
from hypothesis import strategies as st

from understudy.core.prediction_log.lake_rewrites import (
    MAX_MERGED_FILES,
    MERGED_BYTES,
    MUCH,
    SMALL_BYTES,
    TINY_BYTES,
    TableFile,
    crowded,
    files_to_merge,
    rewritten_key,
)

MIB = 1_048_576


def files(*sizes: int, model: str = "visits", deletes: frozenset[str] = frozenset()) -> list[TableFile]:
    return [
        TableFile(f"{model}-{place}", model, "2026-11-26-17", size, size // 70, deletes)
        for place, size in enumerate(sizes)
    ]


def test_small_files_become_one_and_a_large_one_stays():
    chosen = files_to_merge(files(5 * MIB, 60 * MIB, 5 * MIB, 5 * MIB, 127 * MIB))

    assert [file.byte_count for file in chosen] == [5 * MIB] * 3


def test_a_late_file_of_a_few_rows_does_not_have_a_large_one_written_again():
    assert files_to_merge(files(60 * MIB, 10_000)) == []
    assert len(files_to_merge(files(TINY_BYTES, 10_000))) == 2


def test_two_files_of_nearly_the_same_size_become_one():
    assert len(files_to_merge(files(5 * MIB, 5 * MIB + 1))) == 2


def test_a_single_file_and_one_with_row_level_deletes_stay_as_they_are():
    assert files_to_merge(files(5)) == []
    assert files_to_merge(files(5, 5, deletes=frozenset({"d"}))) == []


def test_the_model_and_hour_with_most_files_is_merged_first():
    assert {file.model for file in crowded([*files(5, 5), *files(5, 5, 5, model="churn")])} == {"churn"}
    assert crowded([]) == []


@given(st.lists(st.integers(1, 140 * MIB), max_size=400))
def test_what_is_merged_is_bounded_and_a_row_is_written_anew_only_when_its_file_grows_by_half(sizes):
    chosen = files_to_merge(files(*sizes))

    taken = [file.byte_count for file in chosen]
    assert sum(taken) <= MERGED_BYTES
    assert len(taken) != 1
    assert len(taken) <= MAX_MERGED_FILES
    assert all(size < SMALL_BYTES for size in taken)
    assert all(size <= max(MUCH * sum(taken[:place]), TINY_BYTES) for place, size in enumerate(taken) if place)


def test_no_two_attempts_write_the_same_key():
    keys = {rewritten_key("a/b", "2026-11-26-17", 7, attempt, place) for attempt in ("x", "y") for place in (0, 1)}

    assert len(keys) == 4
    assert all(key.startswith("predictionlog/data/predicted_at_hour=2026-11-26-17/model=a%2Fb/anew-7-") for key in keys)
