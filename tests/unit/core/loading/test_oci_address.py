"""Addresses of OCI artifacts, and the logins of their registries."""

import base64
import json

import pytest

from understudy.core.loading.oci_address import OciLogin, is_loopback, oci_address, parse_logins, parse_registries

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("oci://ghcr.io/team/visits:7", ("ghcr.io", "team/visits", "7", None)),
        (f"oci://r:5000/visits@{DIGEST}", ("r:5000", "visits", None, DIGEST)),
        (f"oci://[::1]:5000/a/b__c/d:canary@{DIGEST}", ("[::1]:5000", "a/b__c/d", "canary", DIGEST)),
    ],
)
def test_an_artifact_is_named_by_registry_repository_tag_and_digest(uri, address):
    assert oci_address(uri) == address
    assert oci_address(oci_address(uri).pinned(DIGEST)).digest == DIGEST


@pytest.mark.parametrize(
    "uri",
    [
        "oci://ghcr.io/team/visits",
        "oci://ghcr.io:7",
        "oci://user:secret@ghcr.io/visits:7",
        "oci://ghcr.io/../visits:7",
        "oci://ghcr.io/Visits:7",
        "oci://ghcr.io/visits:7?x=y",
        "oci://ghcr.io/visits@sha512:00",
        "oci://ghcr.io/visits:7\n",
        "oci://ghcr.io/" + "a" * 2_000 + ":7",
    ],
)
def test_what_names_no_manifest_or_holds_a_login_is_refused_without_repeating_it(uri):
    with pytest.raises(ValueError, match=r"^expected oci://registry/repository:tag or .* without a login$"):
        oci_address(uri)


@pytest.mark.parametrize(
    ("registry", "expected"),
    [
        ("127.0.0.1:5000", True),
        ("localhost", True),
        ("[::1]:5000", True),
        ("127.0.0.1.evil", False),
        ("ghcr.io", False),
    ],
)
def test_a_registry_on_this_machine_is_known_by_its_name(registry, expected):
    assert is_loopback(registry) == expected


def test_logins_are_those_of_a_config_of_docker_each_for_its_registry_alone():
    auth = base64.b64encode(b"ada:with:colons").decode()
    text = json.dumps(
        {"auths": {"https://a.example/v1/": {"auth": auth}, "b:5000": {"username": "bob", "password": "x"}}}
    )

    assert parse_logins(text) == {"a.example": ("ada", "with:colons"), "b:5000": ("bob", "x")}
    assert parse_logins(text)["a.example"].basic == f"Basic {auth}"


def test_a_login_for_a_path_is_not_shown_to_all_of_its_registry_and_no_password_is_printed():
    with pytest.raises(ValueError, match="and none for a path within one") as refused:
        parse_logins(json.dumps({"auths": {"a:5000/team-secret": {"username": "bob", "password": "secret"}}}))

    assert "secret" not in str(refused.value) + repr(OciLogin("bob", "secret"))


@pytest.mark.parametrize(
    "text",
    [
        "secret",
        "[]",
        "{}",
        '{"auths": {"a": {}}}',
        '{"auths": {"a": {"auth": "secret!"}}}',
        '{"auths": {"a": {"auth": "c2VjcmV0"}}}',
        '{"auths": {"a": {"username": "secret", "password": 1}}}',
        '{"auths": {"a": {"identitytoken": "secret"}}}',
    ],
)
def test_what_is_no_config_of_docker_is_refused_without_repeating_it(text):
    with pytest.raises(ValueError, match=r"^expected a config\.json of Docker") as refused:
        parse_logins(text)

    assert "secret" not in str(refused.value)


def test_registries_without_tls_are_named_by_commas():
    assert parse_registries("a:5000, [::1]:1 ,") == {"a:5000", "[::1]:1"}
    with pytest.raises(ValueError, match="expected host:port of registries"):
        parse_registries("http://a")
