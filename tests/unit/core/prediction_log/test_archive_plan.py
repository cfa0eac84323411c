from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.prediction_log.archive_plan import (
    MAX_FOLDER_BYTES,
    ArchiveState,
    Fingerprint,
    LogPartition,
    Step,
    day_folder,
    due,
    escaped,
    file_key,
    fits_folder,
    model_folder,
    next_step,
    together,
)

DAY = 86_400.0
NOW = 1_000 * DAY


def a_month(ended_days_ago: float, *, has_rows: bool = True, has_inputs: bool = False) -> LogPartition:
    end = NOW - ended_days_ago * DAY
    return LogPartition(f"ended {ended_days_ago}", end - 30 * DAY, end, has_rows, has_inputs)


def names_due(*months: LogPartition, inputs_days: float = 30) -> list[str]:
    return [month.name for month in due(months, NOW, 30 * DAY, inputs_days * DAY)]


def test_a_month_goes_thirty_days_after_its_end_and_the_oldest_first():
    assert names_due(a_month(29.9), a_month(30), a_month(90), a_month(-5)) == ["ended 90", "ended 30"]


def test_a_month_with_logged_inputs_waits_until_they_are_erased_by_their_own_age():
    months = a_month(40, has_inputs=True), a_month(40.5)

    assert names_due(*months, inputs_days=60) == ["ended 40.5"]
    assert names_due(*months, inputs_days=40) == ["ended 40.5", "ended 40"]


def test_an_empty_month_stays_while_it_would_be_made_again():
    assert names_due(a_month(30, has_rows=False), a_month(31, has_rows=False)) == ["ended 31"]


def test_a_way_without_accidents_is_export_verify_detach_drop():
    state, is_read_back, steps = ArchiveState.EXPORTING, False, []
    after = {
        Step.EXPORT: ArchiveState.EXPORTED,
        Step.VERIFY: ArchiveState.VERIFIED,
        Step.DETACH: ArchiveState.DETACHED,
        Step.DROP: ArchiveState.ARCHIVED,
    }

    while (step := next_step(state, is_read_back=is_read_back)) is not None:
        steps.append(step)
        state, is_read_back = after[step], is_read_back or step is Step.VERIFY

    assert steps == [Step.EXPORT, Step.VERIFY, Step.DETACH, Step.DROP]


@pytest.mark.parametrize("state", [ArchiveState.EXPORTED, ArchiveState.VERIFIED, ArchiveState.DETACHED])
def test_a_run_that_has_not_read_the_files_itself_neither_detaches_nor_drops(state):
    assert next_step(state, is_read_back=False) is Step.VERIFY


numbers = st.integers(0, 2**62)
fingerprints = st.builds(
    Fingerprint, st.integers(1, 2**40), numbers, numbers, numbers, numbers, numbers, numbers, numbers, numbers
)


@pytest.mark.deep
@given(st.lists(fingerprints), st.randoms())
def test_fingerprints_add_up_in_any_order(parts, dice):
    shuffled = list(parts)
    dice.shuffle(shuffled)

    assert together(shuffled) == together(parts)
    assert together(parts).rows == sum(part.rows for part in parts)


@given(fingerprints)
def test_a_fingerprint_is_read_back_from_its_text_and_nothing_adds_nothing(one):
    assert Fingerprint.parse(one.text) == one
    assert one.plus(Fingerprint()) == one == Fingerprint().plus(one)


@given(st.text(st.characters(blacklist_categories=["Cs"])))
def test_a_name_in_a_path_is_one_folder_and_reads_back(name):
    inside = escaped(name)

    assert not set(inside) & set("/=\\:?\n")
    assert unquote(inside) == name


def test_a_file_says_model_and_day_as_hive_does():
    assert day_folder("churn", "2026-08-01") == "predictionlog/model=churn/day=2026-08-01"
    assert file_key("a/b=c", "2026-08-01", 17, 2, 3) == (
        "predictionlog/model=a%2Fb%3Dc/day=2026-08-01/part-17-2-00003.parquet"
    )


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=255)
long_names = st.builds(
    lambda letter, count, end: (letter * count + end)[:255],
    st.sampled_from("é/漢\U0001f600a"),
    st.integers(60, 255),
    names,
)


@given(names | long_names)
def test_a_models_folder_fits_a_disk_and_says_which_model_it_is_or_that_it_does_not(name):
    folder = model_folder(name)

    assert len(folder.encode()) <= MAX_FOLDER_BYTES
    assert "/" not in folder
    assert (unquote(folder) == f"model={name}") is fits_folder(name)


@given(long_names, st.sampled_from("abé"))
def test_models_whose_names_are_too_long_share_no_folder(name, other):
    assert model_folder(name) != model_folder(name[:254] + other) or name == name[:254] + other


def test_the_beginning_of_a_name_that_is_too_long_stays_readable_and_no_letter_is_cut_in_two():
    folder = model_folder("é" * 200)

    assert folder.startswith("model=" + "é" * 107 + "%7E")
    assert len(folder.encode()) == 255
    assert not fits_folder("__HIVE_DEFAULT_PARTITION__")
