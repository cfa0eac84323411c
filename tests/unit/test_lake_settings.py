"""Where the log goes, as settings."""

import pytest
from pydantic import ValidationError

from understudy.settings import Settings


def test_the_log_goes_to_postgres_alone_by_default():
    assert not Settings().has_lake
    beside = Settings(log="postgres+lake", lake_url="/lake")
    assert (beside.has_lake, beside.is_lake_alone, beside.log_reads) == (True, False, "postgres")


def test_with_the_lake_alone_reports_read_the_lake():
    alone = Settings(log="lake", lake_url="/lake", log_reads="postgres")
    assert (alone.has_lake, alone.is_lake_alone, alone.log_reads) == (True, True, "lake")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"log": "lake"}, "UNDERSTUDY_LOG=lake needs it: s3://bucket/prefix, or a folder"),
        ({"log_reads": "lake"}, "UNDERSTUDY_LOG_READS=lake needs UNDERSTUDY_LAKE_URL"),
        ({"log": "kafka"}, "expected postgres, postgres.lake or lake"),
        ({"log": "postgres+lake"}, "needs it: s3://bucket/prefix, or a folder"),
        ({"log": "postgres+lake", "lake_url": "gs://bucket"}, "expected s3://bucket/prefix without credentials"),
    ],
)
def test_what_cannot_be_is_refused_with_words(values, words):
    with pytest.raises(ValidationError, match=words):
        Settings(**values)
