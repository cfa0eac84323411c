import pytest
from pydantic import ValidationError

from understudy.settings import Settings


@pytest.mark.parametrize(
    "url", ["s3://bucket", "s3://bucket/a/prefix", "/mnt/archive", "archive", "file:///mnt/archive"]
)
def test_an_archive_is_a_bucket_or_a_folder(url):
    assert Settings(archive_url=url).archive_url == url


@pytest.mark.parametrize("url", ["s3://key:topsecret@bucket", "https://bucket", "file://elsewhere/x", ""])
def test_another_archive_or_one_with_credentials_is_refused(url):
    with pytest.raises(ValidationError, match="archive_url"):
        Settings(archive_url=url)


@pytest.mark.parametrize("endpoint", ["minio:9000", "http://key:topsecret@minio:9000", "http://minio:9000/path"])
def test_an_endpoint_is_scheme_and_host(endpoint):
    with pytest.raises(ValidationError, match="archive_endpoint"):
        Settings(archive_endpoint=endpoint)
