"""Names of files in the lake."""

from understudy.core.prediction_log.archive_plan import archive_key
from understudy.core.prediction_log.lake import (
    KEPT_SNAPSHOTS,
    MAX_SNAPSHOTS,
    SNAPSHOTS_AT_ONCE,
    Stretch,
    expired_before,
    lake_file_key,
    lake_spool,
)


def test_the_same_rows_have_the_same_name_below_the_folder_of_their_hour_and_model():
    stretch = Stretch(lake_spool("5f0c"), (7, 0), (9, 120))

    key = lake_file_key("churn/eu", "2026-11-26-17", stretch)

    assert key == "predictionlog/data/predicted_at_hour=2026-11-26-17/model=churn%2Feu/5f0c-7-0-9-120-3.parquet"
    assert archive_key(key) == key


def test_rows_that_begin_or_end_elsewhere_have_another_name():
    places = [((7, 0), (9, 120)), ((7, 1), (9, 120)), ((7, 0), (9, 121)), ((7, 0), (91, 20))]

    keys = {lake_file_key("m", "2026-11-26-17", Stretch("lake:a", *one)) for one in places}

    assert len(keys) == len(places)


def test_snapshots_go_once_they_are_old_but_for_the_newest():
    assert expired_before(range(KEPT_SNAPSHOTS), old=1e9) is None
    assert expired_before(range(KEPT_SNAPSHOTS + 1), old=7) == 7
    assert expired_before(range(10, KEPT_SNAPSHOTS + 11), old=7) is None


def test_snapshots_go_while_they_are_young_where_there_are_very_many_some_at_a_time():
    most = MAX_SNAPSHOTS + SNAPSHOTS_AT_ONCE

    assert expired_before(range(most), old=-1) is None
    assert expired_before(range(most + 1), old=-1) == SNAPSHOTS_AT_ONCE + 1
    assert expired_before(range(most + 1), old=200) == 200
