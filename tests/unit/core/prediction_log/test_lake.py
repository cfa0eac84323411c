"""Names of files in the lake."""

from understudy.core.prediction_log.archive_plan import archive_key
from understudy.core.prediction_log.lake import Stretch, lake_file_key, lake_spool


def test_the_same_rows_have_the_same_name_below_the_folder_of_their_hour_and_model():
    stretch = Stretch(lake_spool("5f0c"), (7, 0), (9, 120))

    key = lake_file_key("churn/eu", "2026-11-26-17", stretch)

    assert key == "predictionlog/data/predicted_at_hour=2026-11-26-17/model=churn%2Feu/5f0c-7-0-9-120-1.parquet"
    assert archive_key(key) == key


def test_rows_that_begin_or_end_elsewhere_have_another_name():
    places = [((7, 0), (9, 120)), ((7, 1), (9, 120)), ((7, 0), (9, 121)), ((7, 0), (91, 20))]

    keys = {lake_file_key("m", "2026-11-26-17", Stretch("lake:a", *one)) for one in places}

    assert len(keys) == len(places)
