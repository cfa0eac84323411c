"""The command line as a person and a program use it, against a real Postgres."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest
from command import CommandLine, Done

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.core.routing.route import bucket_of

DESCRIPTION = {
    "artifact_path": "s3://models/churn/1/model.onnx",
    "framework": "sklearn",
    "input_schema": {"features": [{"name": "age", "dtype": "float32", "min": 0, "max": 130}]},
    "output_schema": {"tensor": "probabilities", "dtype": "float32", "shape": [2], "score_index": 1},
    "metrics": {"auc": 0.71},
    "endpoints": ["127.0.0.1:9000"],
}


def register(understudy: CommandLine, version: str, *more: str) -> Done:
    """Register a version of churn."""
    return understudy("version", "register", "churn", version, "--from", "-", *more, stdin=json.dumps(DESCRIPTION))


def test_a_version_is_registered_listed_and_shown(understudy: CommandLine):
    dry = register(understudy, "1", "--dry-run")
    nothing = understudy("version", "list", "--json")
    made = register(understudy, "1", "--json")
    listed = understudy("version", "list")
    shown = understudy("version", "show", "churn", "1")

    assert (dry.code, made.code, listed.code, shown.code) == (0, 0, 0, 0)
    assert dry.out.startswith("Would register churn 1; nothing was written.")
    assert nothing.document["versions"] == []
    assert made.document["version"]["endpoints"] == ["127.0.0.1:9000"]
    assert listed.out.splitlines()[2].split()[:4] == ["churn", "1", "staging", "oip"]
    assert "s3://models/churn/1/model.onnx" in shown.out


def test_the_next_step_after_registering_is_the_one_that_works(understudy: CommandLine):
    first = register(understudy, "1")
    made = understudy("model", "set", "churn", "--champion", "1", "--reason", "first")
    second = register(understudy, "2")

    assert "understudy model set churn --champion 1" in " ".join(first.out.split())
    assert made.code == 0
    assert "understudy rollout start churn 2" in " ".join(second.out.split())


def test_a_version_is_registered_once_and_only_when_it_can_be_used(understudy: CommandLine):
    register(understudy, "1")

    again = register(understudy, "1")
    nonsense = understudy("version", "register", "churn", "2", "--from", "-", stdin='{"framework": 7}')
    unusable = {**DESCRIPTION, "input_schema": {"features": [{"name": "age", "dtype": "colour"}]}}
    bad_schema = understudy("version", "register", "churn", "2", "--from", "-", stdin=json.dumps(unusable))
    bad_target = register(understudy, "2", "--endpoint", "http://127.0.0.1:9000/x")
    missing = understudy("version", "show", "churn", "2")

    assert [done.code for done in (again, nonsense, bad_schema, bad_target, missing)] == [5, 2, 2, 7, 4]
    assert again.err.startswith("✖ E205")
    assert "artifact_path is missing" in nonsense.err
    assert "framework is not str" in nonsense.err
    assert bad_schema.err.startswith("✖ E204")
    assert "host:port" in bad_target.err
    assert "it has: 1" in missing.err


def test_a_policy_is_set_shown_audited_and_explained(understudy: CommandLine):
    register(understudy, "1")
    register(understudy, "2")

    first = understudy("model", "set", "churn", "--champion", "1", "--reason", "first")
    second = understudy("model", "set", "churn", "--challenger", "2", "--weight", "10", "--reason", "try 2", "--yes")
    listed = understudy("model", "list", "--json")
    shown = understudy("model", "show", "churn")
    audit = understudy("audit", "list", "churn", "--subject", "policy", "--json")
    explained = understudy("explain", "churn", "cust-42", "--json")

    assert [done.code for done in (first, second, listed, shown, audit, explained)] == [0] * 6
    assert listed.document["models"][0]["policy"]["challenger_weight"] == 10
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "…" not in shown.out
    assert "champion 1       ████████████████████████████████████░░░░  90 %" in shown.out
    latest, oldest = audit.document["audit"]
    assert (latest["reason"], latest["via"], latest["changes"]) == (
        "try 2",
        "cli",
        {"challenger": [None, "2"], "challenger_weight": [0, 10]},
    )
    assert (oldest["action"], oldest["generation"]) == ("insert", 1)
    assert explained.document["assignment"]["bucket"] == bucket_of("churn", "cust-42")


def test_further_arms_are_set_by_percent_shown_explained_and_ended(understudy: CommandLine):
    for version in ("6", "7", "8", "9"):
        register(understudy, version)
    understudy("model", "set", "churn", "--champion", "6", "--challenger", "7", "--weight", "10", "--reason", "first")
    why = ("--reason", "three at once", "--yes")

    first = understudy("model", "set", "churn", "--arm", "9=10", "--arm", "8=20", *why, "--json")
    shown = understudy("model", "show", "churn")
    refused = understudy("model", "set", "churn", "--weight", "80", *why)
    grown = understudy("model", "set", "churn", "--weight", "40", "--arm", "8=30", *why)
    explained = understudy("explain", "churn", next(e for e in map(str, range(9_999)) if bucket_of("churn", e) == 99))
    promoted = understudy("model", "set", "churn", "--champion", "9", "--arm", "9=0", *why, "--json")
    ended = understudy("model", "set", "churn", "--arm", "none", *why, "--json")
    listed = understudy("audit", "list", "churn")

    assert [done.code for done in (first, shown, refused, grown, explained, promoted, ended)] == [0, 0, 7, 0, 0, 0, 0]
    assert first.document["moved_percent"] == 30
    assert first.document["policy"]["arms"] == [
        {"version": "8", "first": 70, "last": 89},
        {"version": "9", "first": 90, "last": 99},
    ]
    assert "champion 6       ████████████████████████░░░░░░░░░░░░░░░░  60 %" in shown.out
    assert "arm 9            ████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  10 %" in shown.out
    assert "8 has the buckets 70 to 89, 9 has the buckets 90 to 99" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "version 8 has 70 to 89" in refused.err
    assert "understudy model set churn --weight 70" in refused.err
    assert "40 % of the entities change their version" in grown.out
    assert "challenger 9" in explained.out
    assert "version 9, a further arm" in explained.out
    assert [arm["version"] for arm in promoted.document["policy"]["arms"]] == ["8"]
    assert (ended.document["policy"]["arms"], ended.document["moved_percent"]) == ([], 30)
    assert "arms {'8': 30} → {}" in listed.out


def test_a_change_of_traffic_is_not_made_by_a_program_that_did_not_mean_it(understudy: CommandLine):
    register(understudy, "1")
    register(understudy, "2")
    understudy("model", "set", "churn", "--champion", "1", "--challenger", "2", "--reason", "first")

    without_reason = understudy("model", "set", "churn", "--weight", "5", "--yes")
    without_yes = understudy("model", "set", "churn", "--weight", "5", "--reason", "x")
    dry = understudy("model", "set", "churn", "--weight", "5", "--dry-run", "--json")
    stale = understudy("model", "set", "churn", "--weight", "5", "--reason", "x", "--yes", "--expect-generation", "7")
    after = understudy("model", "show", "churn", "--json")

    assert (without_reason.code, without_yes.code, dry.code, stale.code) == (2, 2, 0, 5)
    assert "--reason" in without_reason.err
    assert "--yes" in without_yes.err
    assert (dry.document["dry_run"], dry.document["changed"]) == (True, False)
    assert "at generation 1, not 7" in stale.err
    assert after.document["model"]["policy"]["generation"] == 1


def test_a_refused_change_shows_the_databases_own_words_and_advice(understudy: CommandLine):
    register(understudy, "1")
    understudy("model", "set", "churn", "--champion", "1", "--reason", "first")

    refused = understudy("model", "set", "churn", "--weight", "130", "--reason", "x", "--yes")
    as_json = understudy("model", "set", "churn", "--weight", "5", "--reason", "x", "--yes", "--json")

    assert (refused.code, refused.out) == (7, "")
    assert refused.err == (
        "✖ E203 The database refused the change\n"
        "  challenger_weight of churn is a percentage from 0 to 100, not 130\n"
        "  → understudy model set churn --weight 0 --reason '…' sends the challenger nothing, --weight 100 everything\n"
    )
    error = json.loads(as_json.err)["error"]
    assert (as_json.code, error["code"], error["exit_code"]) == (7, "E203", 7)
    assert "has no challenger" in error["detail"]
    assert "understudy model set churn --challenger VERSION --weight 5" in error["next"]


def test_a_change_by_plain_sql_is_in_the_audit_too(understudy: CommandLine, database_url: str):
    register(understudy, "1")
    understudy("model", "set", "churn", "--champion", "1", "--reason", "first")

    asyncio.run(execute(database_url, "UPDATE ServingPolicy SET fallback = FALSE WHERE model_name = 'churn'"))

    said = understudy("audit", "list").out
    assert "churn generation 2" in said
    assert "fallback True → False" in said


def test_a_key_is_shown_once_listed_and_revoked(understudy: CommandLine):
    made = understudy("key", "create", "--scope", "predict:churn", "--scope", "read", "--note", "web shop", "--json")
    key_id, secret = made.document["credential"].split(".")
    before = understudy("key", "list")
    revoked = understudy("key", "revoke", key_id)
    after = understudy("key", "list", "--json")
    nonsense = understudy("key", "create", "--scope", "everything")

    assert (made.code, revoked.code, nonsense.code) == (0, 0, 2)
    assert key_id in before.out
    assert "valid" in before.out
    assert secret not in before.out + after.out
    assert after.document["keys"][0]["revoked_at"] is not None
    assert "everything" in nonsense.err


def test_the_schema_is_checked_and_upgraded(empty_database_url: str):
    understudy = CommandLine(empty_database_url)

    behind = understudy("db", "check")
    would = understudy("db", "upgrade", "--dry-run")
    upgraded = understudy("db", "upgrade", "--json")
    again = understudy("db", "upgrade", "--json")
    good = understudy("db", "check")

    assert [done.code for done in (behind, would, upgraded, again, good)] == [1, 0, 0, 0, 0]
    assert "✖ schema" in behind.out
    assert "understudy db upgrade" in " ".join(behind.out.split())
    assert "nothing was changed" in would.out
    assert (upgraded.document["changed"], again.document["changed"]) == (True, False)


def test_the_doctor_finds_a_champion_without_a_server(understudy: CommandLine):
    port = free_port()
    register(understudy, "1", "--endpoint", f"127.0.0.1:{port}")
    understudy("model", "set", "churn", "--champion", "1", "--reason", "first")

    done = understudy("doctor", "--json")

    states = {finding["name"]: finding["state"] for finding in done.document["findings"]}
    assert (done.code, done.document["problems"]) == (1, 1)
    assert states["churn 1 champion"] == "problem"
    assert {states[name] for name in ("config", "postgres", "clock", "schema", "partitions")} == {"good"}
    assert states["proxies"] == "warning"


def test_the_doctor_says_whether_a_monitor_leads(understudy: CommandLine, database_url: str):
    async def lead(*, then_leave: bool) -> None:
        lease = PostgresLease(database_url)
        await lease.take_or_renew("vm:1")
        if then_leave:
            await lease.release("vm:1")
        await lease.close()

    def finding() -> tuple[str, str]:
        found = {one["name"]: one for one in understudy("doctor", "--json").document["findings"]}["monitor"]
        return found["state"], found["what"]

    never = finding()
    asyncio.run(lead(then_leave=False))
    leads = finding()
    asyncio.run(lead(then_leave=True))
    left = finding()

    assert [state for state, _ in (never, leads, left)] == ["warning", "good", "warning"]
    assert leads[1].startswith("vm:1 leads")


def test_without_a_database_commands_leave_with_69_and_the_doctor_with_1():
    understudy = CommandLine(f"postgresql://nobody:secret-word@127.0.0.1:{free_port()}/none")

    listed = understudy("model", "list")
    doctor = understudy("doctor")

    assert (listed.code, doctor.code) == (69, 1)
    assert listed.err.startswith("✖ E510")
    assert "✖ postgres" in doctor.out
    assert "secret-word" not in listed.out + listed.err + doctor.out + doctor.err


def test_a_setting_that_cannot_be_used_is_named_and_its_value_is_not_repeated(
    understudy: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("UNDERSTUDY_PORT", "eighty-eighty")

    done = understudy("model", "list")

    assert done.code == 2
    assert "UNDERSTUDY_PORT" in done.err
    assert "eighty-eighty" not in done.err


def test_the_installed_command_keeps_data_and_advice_apart(understudy: CommandLine, database_url: str, tmp_path: Path):
    environment = {**os.environ, "DATABASE_URL": database_url}
    command = [str(Path(sys.executable).with_name("understudy")), "version", "show", "churn", "1", "--json"]

    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=environment
    )

    assert (done.returncode, done.stdout) == (4, "")
    assert json.loads(done.stderr)["error"]["code"] == "E206"
    assert understudy(*command[1:]) == (done.returncode, done.stdout, done.stderr), "as in the tests' own process"


@pytest.mark.parametrize(("typed", "code", "weight"), [("churn", 0, 5), ("chrun", 2, 0)])
def test_a_person_confirms_a_change_of_traffic_by_typing_the_models_name(
    understudy: CommandLine, database_url: str, typed: str, code: int, weight: int
):
    register(understudy, "1")
    register(understudy, "2")
    understudy("model", "set", "churn", "--champion", "1", "--challenger", "2", "--reason", "first")

    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "understudy.entrypoints.cli", "model", "set", "churn", "--weight", "5"]
    environment = {**os.environ, "DATABASE_URL": database_url, "COLUMNS": "80", "NO_COLOR": "1"}
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as asked:
        os.close(terminal)
        said = read_until(ours, b"pass --yes")
        os.write(ours, f"{typed}\n".encode())
        read_until(ours, b"\0")
        assert asked.wait(30) == code
    os.close(ours)

    assert "This moves production traffic: challenger_weight 0 → 5" in said.decode()
    policy = understudy("model", "show", "churn", "--json").document["model"]["policy"]
    assert policy["challenger_weight"] == weight


@pytest.mark.parametrize(
    "change",
    [
        ["model", "set", "churn", "--weight", "5"],
        ["model", "restore", "churn", "1"],
        ["rollout", "start", "churn", "2"],
        ["entity", "forget", "churn", "c-1"],
    ],
    ids=" ".join,
)
def test_at_a_terminal_too_yes_stands_for_the_question_and_not_for_the_reason(change: list[str]):
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "understudy.entrypoints.cli", *change, "--yes"]
    environment = {**os.environ, "DATABASE_URL": "postgresql://nowhere.invalid/x", "COLUMNS": "80", "NO_COLOR": "1"}
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as asked:
        os.close(terminal)
        said = read_until(ours, b"\0")
        assert asked.wait(30) == 2
    os.close(ours)

    assert "this change needs a reason" in said.decode()


def read_until(terminal: int, mark: bytes) -> bytes:
    """Read what a terminal shows up to a mark, or to its end."""
    said = b""
    with suppress(OSError):  # Linux' way to say that nobody writes any more
        while mark not in said and (piece := os.read(terminal, 4_096)):
            said += piece
    return said


async def execute(database_url: str, statement: str) -> None:
    connection = await asyncpg.connect(database_url, timeout=10)
    await connection.execute(statement)
    await connection.close(timeout=5)
