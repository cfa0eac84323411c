"""What the environment may hold."""

import pytest
from pydantic import ValidationError

from understudy.settings import URL_CHECKS, Settings, is_secret, variable_of


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("environment", ""),
        ("environment", "eu/prod"),
        ("environment", "x" * 41),
        ("monitor_tick_seconds", "0"),
        ("pagerduty_routing_key", ""),
        ("alert_webhook_url", ""),
    ],
)
def test_a_value_that_would_break_alerts_or_the_schedule_is_refused_by_name(field, value):
    with pytest.raises(ValidationError) as refusal:
        Settings.model_validate({field: value})

    assert [error["loc"] for error in refusal.value.errors()] == [(field,)]


SCHEMES = {"database": "postgresql", "redis": "redis"}
NO_PASSWORD = {"oidc_jwks_url", "proxy_url", "archive_url", "lake_url", "runbooks_url"}
"""URLs that are refused with an account in them."""
SIGNING = f"whsec_{'c2VjcmV0' * 4}"
SECRETS = [name for name, field in Settings.model_fields.items() if is_secret(field)]


def test_every_url_that_may_hold_a_password_is_a_secret():
    ends = (
        "_url",
        "_routing_key",
        "cache_key",
        "console_secret",
        "console_secret_before",
        "console_proxy_secret",
        "credential",
        "_otlp_headers",
        "_traces_headers",
        "receivers",
        "gates",
        "gate_secret",
        "metric_sources",
        "guard_metrics",
        "metric_source_tokens",
        "judges",
        "judge_tokens",
        "_logins",
    )
    may_hold_one = {name for name in Settings.model_fields if name.endswith(ends)}

    assert may_hold_one - NO_PASSWORD == set(SECRETS)


@pytest.mark.parametrize("name", sorted(NO_PASSWORD))
@pytest.mark.parametrize("url", ["https://ada:secret@example.test", "s3://ada:secret@bucket/log"])
def test_a_url_that_is_no_secret_takes_no_password(name, url):
    with pytest.raises(ValidationError):
        Settings.model_validate({name: url})


def test_every_url_that_may_hold_a_password_is_checked_before_a_client_reads_it():
    assert {name for name in SECRETS if name.endswith("_url")} == set(URL_CHECKS)


def test_an_error_of_the_logins_of_registries_holds_nothing_of_them():
    with pytest.raises(ValidationError, match=r"expected a config\.json of Docker") as refusal:
        Settings.model_validate({"oci_logins": '{"auths": {"a:1": {"auth": "Xy7z"}}}'})

    assert "Xy7z" not in str(refusal.value)


@pytest.mark.parametrize("name", sorted(URL_CHECKS))
def test_an_error_of_the_settings_never_holds_what_they_were_given(name):
    scheme = SCHEMES.get(name.removesuffix("_url").rpartition("_")[2], "https")

    with pytest.raises(ValidationError, match="has a meaning in URLs") as refusal:
        Settings.model_validate({name: f"{scheme}://proxy:Xy7z/hidden@db/understudy"})

    assert "Xy7z" not in str(refusal.value)


def test_an_error_of_the_receivers_never_holds_an_address():
    with pytest.raises(ValidationError, match="the receiver ops: ") as refusal:
        Settings.model_validate({"receivers": "bus=https://hooks.example/Xy7z ops=ftp://hooks.example/Xy7z"})

    assert "Xy7z" not in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"gates": "quality=https://gate.example/Xy7z"}, "UNDERSTUDY_GATES needs it, too"),
        ({"gates": "quality=ftp://gate.example/Xy7z", "gate_secret": SIGNING}, "the gate quality: "),
        ({"gate_secret": "Xy7z"}, "expected whsec_"),
    ],
)
def test_gates_are_not_asked_without_a_signature_and_an_error_holds_no_address_and_no_secret(given, why):
    with pytest.raises(ValidationError, match=why) as refusal:
        Settings.model_validate(given)

    assert "Xy7z" not in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"guard_metrics": "[]"}, "expected a JSON object such as"),
        ({"guard_metrics": '{"churn": [{"name": 7}]}'}, "/churn/0/name: expected a name"),
        ({"metric_sources": "shop=ftp://shop.example/Xy7z"}, "the metric source shop: "),
        ({"metric_sources": "shop=https://shop.example/?a=Xy7z"}, "the base of its API, without"),
        ({"metric_sources": "shop=https://shop.example", "metric_source_tokens": "shop"}, "entry 1 is not name=token"),
        ({"metric_sources": "shop=https://shop.example", "metric_source_tokens": "bar=Xy7z"}, "does not have"),
        ({"metric_source_tokens": "shop=Xy7z"}, "does not have"),
        ({"metric_sources": "shop=https://h", "metric_source_tokens": "shop=a shop=Xy7z"}, "a second token"),
        ({"metric_sources": "shop=https://a:Xy7z@h", "metric_source_tokens": "shop=Xy7z"}, "has a user already"),
        ({"judges": "quality=ftp://judge.example/Xy7z"}, "the judge quality: "),
        ({"judges": "quality=https://judge.example", "judge_tokens": "bar=Xy7z"}, "UNDERSTUDY_JUDGES does not have"),
        ({"judges": "quality=https://h/Xy7z", "guard_judges": '{"*": {"name": "kind"}}'}, "has no judge kind"),
        ({"guard_judges": '{"*": {"name": "quality"}}'}, "/\\*/name: UNDERSTUDY_JUDGES has no judge quality"),
        ({"judge_tokens": "quality=Xy7z"}, "UNDERSTUDY_JUDGES does not have"),
    ],
)
def test_an_error_of_metric_sources_and_judges_holds_no_address_and_no_token(given, why):
    with pytest.raises(ValidationError, match=why) as refusal:
        Settings.model_validate(given)

    assert "Xy7z" not in str(refusal.value)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_may_come_from_a_file_without_its_last_line_end(name, tmp_path, monkeypatch):
    path = tmp_path / "secret"
    scheme = SCHEMES.get(name.removesuffix("_url").rpartition("_")[2], "https")
    text = {
        "receivers": "ops=https://hooks.example/pa-ss",
        "gates": "quality=https://gate.example/pa-ss",
        "gate_secret": SIGNING,
        "metric_sources": "shop=https://prometheus.example/pa-ss",
        "metric_source_tokens": "shop=pa-ss",
        "guard_metrics": '{"churn": []}',
        "judges": "quality=https://judge.example/pa-ss",
        "guard_judges": '{"churn": null}',
        "judge_tokens": "quality=pa-ss",
        "oci_logins": '{"auths": {"a:1": {"auth": "YTpi"}}}',
    }.get(name, f"{scheme}://proxy:pa ss@db/understudy")
    path.write_text(f"{text}\n")
    if name == "gates":
        monkeypatch.setenv("UNDERSTUDY_GATE_SECRET", SIGNING)
    if name == "judge_tokens":
        monkeypatch.setenv("UNDERSTUDY_JUDGES", "quality=https://judge.example")
    if name == "metric_source_tokens":
        monkeypatch.setenv("UNDERSTUDY_METRIC_SOURCES", "shop=https://prometheus.example")
    monkeypatch.setenv(f"{variable_of(name, Settings.model_fields[name])}_FILE", str(path))

    value = getattr(Settings(), name)

    assert value.get_secret_value() == text
    assert name in Settings().model_fields_set


def test_a_secret_that_is_given_twice_is_refused_and_not_chosen_from(tmp_path, monkeypatch):
    path = tmp_path / "secret"
    path.write_text("postgresql://one/x")
    monkeypatch.setenv("DATABASE_URL_FILE", str(path))
    monkeypatch.setenv("DATABASE_URL", "postgresql://two/x")

    with pytest.raises(ValidationError, match="set DATABASE_URL or DATABASE_URL_FILE, not both"):
        Settings()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file or directory"),
        (b" \n", "is empty"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"x" * 65_537, "is longer than 65536 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_by_its_variable_and_never_shown(content, why, tmp_path, monkeypatch):
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("UNDERSTUDY_ALERT_WEBHOOK_URL_FILE", str(path))

    with pytest.raises(
        ValidationError, match=f"the file that UNDERSTUDY_ALERT_WEBHOOK_URL_FILE names {why}"
    ) as refusal:
        Settings()

    assert [error["loc"] for error in refusal.value.errors()] == [("alert_webhook_url",)]


def test_only_secrets_come_from_files(tmp_path, monkeypatch):
    path = tmp_path / "host"
    path.write_text("0.0.0.0")
    monkeypatch.setenv("UNDERSTUDY_HOST_FILE", str(path))

    assert Settings().host == "127.0.0.1"


def test_a_cache_key_that_can_be_guessed_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("UNDERSTUDY_CACHE_KEY", "short-and-secret")

    with pytest.raises(ValidationError) as refused:
        Settings()

    assert [error["loc"] for error in refused.value.errors()] == [("cache_key",)]
    assert "at least 32" in refused.value.errors()[0]["msg"]


ISSUER = {
    "oidc_issuer": "https://issuer",
    "oidc_audience": "https://predict",
    "oidc_jwks_url": "https://issuer/keys",
}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"oidc_audience": None}, "set together"),
        ({"oidc_jwks_url": None}, "set together"),
        ({"oidc_issuer": None}, "set together"),
        ({"oidc_jwks_url": "http://issuer/keys"}, "http:// only on this machine"),
        ({"oidc_jwks_url": "https://dana:secret@issuer/keys"}, "http:// only on this machine"),
        ({"oidc_jwks_url": "file:///keys"}, "http:// only on this machine"),
        ({"oidc_algorithms": "RS256,HS256"}, "expected some of"),
        ({"oidc_algorithms": "none"}, "expected some of"),
        ({"oidc_algorithms": ""}, "expected some of"),
        ({"oidc_scopes": '{"groups": {"all": ["write"]}}'}, "there is no scope 'write'"),
        ({"oidc_leeway_seconds": 301}, "less than or equal to 300"),
        ({"oidc_max_token_seconds": 0}, "greater than 0"),
    ],
)
def test_an_issuer_is_named_whole_and_only_with_what_can_be_believed(other, why):
    assert Settings(**ISSUER).oidc_issuer == "https://issuer"
    assert Settings(**{**ISSUER, "oidc_jwks_url": "http://127.0.0.1:8/keys"}).oidc_jwks_url is not None
    with pytest.raises(ValidationError, match=why) as refused:
        Settings(**{**ISSUER, **other})
    assert "secret@" not in str(refused.value)
