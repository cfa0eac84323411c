"""Where the log goes, as settings."""

import pytest
from pydantic import ValidationError

from understudy.settings import Settings


def test_the_log_goes_to_postgres_alone_by_default():
    assert not Settings().has_lake
    assert Settings(log="postgres+lake", lake_url="/lake").has_lake


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"log": "lake", "lake_url": "/lake"}, "entity forget read PredictionLog in Postgres.*set postgres.lake"),
        ({"log_reads": "lake"}, "UNDERSTUDY_LOG_READS=lake needs UNDERSTUDY_LAKE_URL"),
        ({"log": "kafka"}, "expected postgres or postgres.lake"),
        ({"log": "postgres+lake"}, "needs it: s3://bucket/prefix, or a folder"),
        ({"log": "postgres+lake", "lake_url": "gs://bucket"}, "expected s3://bucket/prefix without credentials"),
    ],
)
def test_what_cannot_be_is_refused_with_words(values, words):
    with pytest.raises(ValidationError, match=words):
        Settings(**values)
