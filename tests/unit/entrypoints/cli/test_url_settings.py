"""No command says a part of a password in a URL that its environment gives it: it ends with 2 and what to encode."""

import random
import string
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from command import CommandLine

from understudy.entrypoints.cli.shared.startup.noun_group import load
from understudy.entrypoints.cli.shared.startup.nouns import NOUNS
from understudy.settings import Settings, variable_of

TEMPLATES = {
    "database_url": "postgresql://proxy:{}@db.internal:5432/understudy",
    "log_database_url": "postgresql://proxy:{}@db.internal:5432/understudy",
    "control_database_url": "postgresql://proxy:{}@db.internal:5432/understudy",
    "retention_database_url": "postgresql://proxy:{}@db.internal:5432/understudy",
    "redis_url": "redis://:{}@cache.internal:6379/0",
    "feature_redis_url": "rediss://proxy:{}@cache.internal:6379/0",
    "alert_webhook_url": "https://alerts:{}@hooks.internal/alerts",
    "archive_url": "s3://key:{}@bucket/log",
    "lake_url": "s3://key:{}@bucket/log",
    "archive_endpoint": "http://key:{}@minio:9000",
    "lake_endpoint": "http://key:{}@minio:9000",
    "artifact_endpoint": "http://key:{}@minio:9000",
    "artifact_stores": "s3://key:{}@bucket/models",
    "runbooks_url": "https://ada:{}@docs.internal/runbooks",
    "proxy_url": "https://ada:{}@predict.internal",
    "oidc_jwks_url": "https://ada:{}@issuer.internal/keys",
}
"""Every setting that is a URL, with a password; those of OpenTelemetry are ``serve proxy``'s alone."""
COMMANDS = """
demo
serve proxy
serve monitor
serve agent
serve console
db archive
db upgrade
db downgrade 0010
db check
db index-entities
db partitions
db psql
version diff visits 1 2
version check visits 2
version register visits 3 --from version.json
version add-endpoint visits 2 127.0.0.1:9000
version remove-endpoint visits 2 127.0.0.1:9000
version list
version show visits 2
version load visits 2 --group onnx
version unload visits 2
server list
server drain --self
version retire visits 2 --reason why
version restore visits 2 --reason why
model list
model show visits
model set visits --weight 0 --reason why --yes
model restore visits 1 --reason why --yes
context set prod --url https://predict.internal
context use prod
context list
context show
context remove prod
examples register --endpoint visits=127.0.0.1:9000
ab plan visits
ab report visits --metric converted
ab list visits
ab stop visits 1
ab outcomes import outcomes.jsonl
shadow report visits
shadow examples visits
drift report visits
drift skew visits
drift baseline set visits 2 --from-log --reason why
plan visits 2
rollout start visits 2 --reason why --yes
rollout show visits
rollout list
rollout watch visits
rollout wait visits
rollout pause visits --reason why --yes
rollout resume visits --reason why --yes
rollout promote visits --reason why --yes
rollout approve visits --reason why --yes
rollout abort visits --reason why --yes
rollback visits --reason why --yes
predict visits --entity u1
explain visits u1
log query SELECT
log query SELECT --live
log show 019a0000-0000-7000-8000-000000000001
log tail
log replay visits 2
version validate visits 2
source show --file sources.yaml
source follow --file sources.yaml --once
entity forget visits customer-42 --yes --reason x
audit list
apply -f policy.yaml --yes
diff -f policy.yaml
key create --scope read
key list
key revoke 0123456789abcdef
subscription add ops --receiver ops-chat
subscription list
subscription test ops
subscription remove ops
doctor
"""
"""A call of every command that reads settings."""
SOURCE = "kind: mlflow\nmodel: visits\nurl: https://mlflow.internal\nalias: challenger\ngroup: onnx\n"
VERSION = """
{"artifact_path": "file:///a", "framework": "onnx", "input_schema": {"features": [{"name": "age", "dtype": "float"}]}}
"""
WITHOUT_SETTINGS = {("modelserver",), ("examples", "traffic")}
PIECE = 4
"""Characters in a row that count as a part of a password."""


def all_commands() -> Iterator[tuple[str, ...]]:
    """Every command, by the words that call it."""
    for noun in NOUNS:
        yield from _below(load(noun), (noun,))


def _below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not hasattr(command, "commands"):
        yield words
        return
    for name, below in command.commands.items():
        yield from _below(below, (*words, name))


def password(chance: random.Random) -> str:
    """Return a password of any signs, with one that ends the account where it was not meant to."""
    signs = string.ascii_letters + string.digits + string.punctuation
    return "".join(chance.choices(signs, k=10)) + chance.choice("/?#") + "".join(chance.choices(signs, k=10))


def pieces(secret: str) -> set[str]:
    return {secret[at : at + PIECE] for at in range(len(secret) - PIECE + 1)}


def test_every_setting_that_is_a_url_is_tried():
    ends = ("_url", "archive_endpoint", "artifact_endpoint", "lake_endpoint", "artifact_stores")
    urls = {name for name in Settings.model_fields if name.endswith(ends)}

    assert urls == set(TEMPLATES)


def test_every_command_is_called():
    calls = [tuple(line.split()) for line in COMMANDS.strip().splitlines()]
    called = {words for words in all_commands() if any(call[: len(words)] == words for call in calls)}

    assert set(all_commands()) - called == WITHOUT_SETTINGS


@pytest.mark.deep
def test_500_passwords_in_every_setting_and_command_come_out_of_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outcomes.jsonl").touch()
    (tmp_path / "version.json").write_text(VERSION)
    (tmp_path / "sources.yaml").write_text(SOURCE)
    (tmp_path / "policy.yaml").write_text("model: visits\nguard: alert\n")
    calls = list(product(COMMANDS.strip().splitlines(), TEMPLATES.items()))
    chance, understudy = random.Random(16), CommandLine(None)

    for line, (setting, template) in calls:
        secret, variable = password(chance), variable_of(setting, Settings.model_fields[setting])
        done = understudy(*line.split(), **{variable: template.format(secret)})

        said = done.out + done.err
        assert (done.code, variable in said) == (2, True), (line, variable, said)
        assert [piece for piece in pieces(secret) if piece in said] == [], (line, variable, said)
        assert "Traceback" not in said

    assert len(calls) >= 500


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_passwords_in_a_collectors_address_come_out_of_no_proxy(variable, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance, understudy = random.Random(17), CommandLine(None)

    for _ in range(20):
        secret = password(chance)
        done = understudy("serve", "proxy", **{variable: f"http://key:{secret}@collector:4318"})

        assert (done.code, variable in done.err) == (2, True), done
        assert [piece for piece in pieces(secret) if piece in done.out + done.err] == []
