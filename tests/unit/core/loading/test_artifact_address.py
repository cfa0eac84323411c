"""Addresses of artifacts, and which of them an agent may read."""

import pytest

from understudy.core.loading.artifact_address import holds_login, is_in, object_address, parse_stores, scheme_of


@pytest.mark.parametrize(
    ("uri", "scheme"),
    [("visits/7", ""), ("/visits:7", ""), ("file:///a", "file"), ("s3://b/k", "s3"), ("oci://r/n:t", "oci"), ("", "")],
)
def test_the_scheme_says_who_reads_an_artifact(uri, scheme):
    assert scheme_of(uri) == scheme


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("s3://models/visits/7", ("models", "visits/7", False)),
        ("s3://models/visits/7/", ("models", "visits/7", True)),
        ("s3://models/", ("models", "", True)),
        ("s3://models/a b/ä@1", ("models", "a b/ä@1", False)),
    ],
)
def test_an_object_or_prefix_is_named_by_bucket_and_key(uri, address):
    assert object_address(uri) == address


@pytest.mark.parametrize("uri", ["s3://models", "s3:///a", "s3://k:s@models/a", "s3://models/a?b", "s3://models/a#b"])
def test_what_names_no_key_or_holds_a_login_is_refused_without_repeating_it(uri):
    with pytest.raises(ValueError, match=r"^expected s3://bucket/key without credentials, query and fragment$"):
        object_address(uri)


@pytest.mark.parametrize(
    ("uri", "permitted"),
    [
        ("s3://models/visits/7", True),
        ("s3://models/visits", True),
        ("s3://models/visitsx/7", False),
        ("s3://models/visits/../churn", False),
        ("s3://other/visits/7", False),
        ("oci://registry.internal/models:7", True),
        ("oci://registry.internal/models@sha256:ab", True),
        ("oci://registry.internal/modelsx:7", False),
        ("oci://registry.internal.evil/models:7", False),
    ],
)
def test_an_address_lies_in_a_store_by_whole_names(uri, permitted):
    assert is_in(uri, parse_stores("s3://models/visits/ , oci://registry.internal/models")) == permitted


def test_after_a_registry_or_a_prefix_of_a_bucket_only_a_slash_follows():
    stores = parse_stores("s3://models/visits,oci://registry.internal")

    assert is_in("oci://registry.internal/models:7", stores)
    for uri in ("oci://registry.internal:6379/x:1", "s3://models/visits:secret/7", "s3://models/visits@old/7"):
        assert not is_in(uri, stores)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://key:secret@models/7", True),
        ("s3://key:sec/ret@models/7", True),
        ("oci://user:sec/ret@r:5000/n:7", True),
        ("oci://r:5000/n:7@sha256:ab", False),
        ("oci://[::1]:5000/n:7", False),
        ("s3://models/a:b@1", False),
        ("file:///a:b@c", False),
    ],
)
def test_a_login_is_seen_even_where_a_slash_of_its_password_cuts_it(uri, expected):
    assert holds_login(uri) == expected


@pytest.mark.parametrize("text", ["models", "https://x", "s3://k:s@models/a", "s3://", "oci://u@r/n"])
def test_what_is_no_store_is_refused_without_repeating_it(text):
    with pytest.raises(ValueError, match=r"^expected s3://bucket/prefix or oci://registry/repository"):
        parse_stores(text)
