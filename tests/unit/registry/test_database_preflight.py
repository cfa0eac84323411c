"""Findings about databases that no server here can be made to be."""

import pytest

from understudy.ports.preflight import DatabaseSnapshot, Numbering, Setting
from understudy.registry.database_preflight import Needs, judge_database
from understudy.registry.findings.finding import State

NEEDS = Needs("0010", ("0009", "0010"), frozenset({"table rollout"}), ("understudy_proxy",))
GOOD = DatabaseSnapshot(
    revision="0010",
    server_version=180_004,
    encoding="UTF8",
    is_standby=False,
    collation_moved="",
    extensions=["plpgsql"],
    settings=[],
    schema="public",
    is_open_to_all=False,
    objects=frozenset({"table rollout"}),
    disabled_triggers=[],
    invalid_indexes=[],
    unproven_constraints=[],
    owners={"owner": ["rollout"]},
    owner="owner",
    months=["2026_10", "2026_11", "2026_12", "2027_01", "2027_02"],
    loose_months=[],
    this_month="2026_11",
    roles=frozenset({"understudy_proxy"}),
    rights=frozenset(),
    rights_meant=frozenset(),
    sequences=[],
    unreadable=[],
)


def state_of(snapshot: DatabaseSnapshot, name: str) -> State:
    (found,) = [finding for finding in judge_database(snapshot, NEEDS) if finding.name == name]
    assert found.next_step or found.state is State.GOOD
    return found.state


def test_a_database_that_has_all_is_fit():
    assert {finding.state for finding in judge_database(GOOD, NEEDS)} == {State.GOOD}


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"is_standby": True}, State.PROBLEM),
        ({"server_version": 140_012}, State.PROBLEM),
        ({"server_version": 190_001}, State.WARNING),
        ({"server_version": 150_001}, State.GOOD),
        ({"collation_moved": "2.31 became 2.36"}, State.WARNING),
    ],
)
def test_the_server_is_judged(change, state):
    assert state_of(GOOD._replace(**change), "server") is state


@pytest.mark.parametrize(
    ("months", "state"),
    [
        (["2026_11", "2026_12", "2027_01"], State.GOOD),
        (["2026_11", "2026_12"], State.WARNING),
        (["2026_11", "2026_12", "2027_01", "2027_03"], State.WARNING),
        (["2026_10", "2026_12", "2027_01"], State.PROBLEM),
        ([], State.PROBLEM),
    ],
)
def test_a_month_that_is_missing_between_others_is_missed_too(months, state):
    assert state_of(GOOD._replace(months=months), "partitions") is state


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("lock_timeout", "100", State.WARNING),
        ("lock_timeout", "0", State.GOOD),
        ("lock_timeout", "4s", State.GOOD),
        ("statement_timeout", "1500ms", State.WARNING),
        ("statement_timeout", "1min", State.GOOD),
        ("TimeZone", "Etc/UTC", State.GOOD),
        ("TimeZone", "Europe/Berlin", State.WARNING),
        ("search_path", '"$user", public', State.GOOD),
        ("search_path", "elsewhere", State.PROBLEM),
        ("synchronous_commit", "remote_apply", State.GOOD),
        ("synchronous_commit", "off", State.WARNING),
        ("default_transaction_read_only", "on", State.PROBLEM),
    ],
)
def test_a_setting_is_judged_by_its_value_in_whatever_unit(name, value, state):
    assert state_of(GOOD._replace(settings=[Setting("the database", name, value)]), "settings") is state


def test_of_two_settings_the_worse_decides_and_both_are_named():
    snapshot = GOOD._replace(
        settings=[
            Setting("the database", "synchronous_commit", "off"),
            Setting("the login x", "default_transaction_read_only", "on"),
        ]
    )

    (found,) = [finding for finding in judge_database(snapshot, NEEDS) if finding.name == "settings"]

    assert found.state is State.PROBLEM
    assert "synchronous_commit of the database" in found.what
    assert "default_transaction_read_only of the login x" in found.what


@pytest.mark.parametrize(
    ("path", "state"),
    [
        ('"$user", elsewhere', State.GOOD),
        ("ours", State.GOOD),
        ("public", State.PROBLEM),
    ],
)
def test_a_path_leads_to_our_tables_through_the_name_of_their_owner_too(path, state):
    setting = Setting("the database", "search_path", path)
    snapshot = GOOD._replace(schema="ours", owner="ours", owners={"ours": ["rollout"]}, settings=[setting])

    assert state_of(snapshot, "settings") is state


@pytest.mark.parametrize(
    ("last", "highest", "state"),
    [(49, 0, State.GOOD), (50, 0, State.WARNING), (90, 0, State.PROBLEM), (1, 2, State.PROBLEM)],
)
def test_numbers_that_run_out_or_collide_are_told_before_they_do(last, highest, state):
    snapshot = GOOD._replace(sequences=[Numbering("rollout_id_seq", "rollout", last, 100, highest)])

    assert state_of(snapshot, "sequences") is state


def test_on_a_schema_of_another_release_nothing_is_said_of_its_parts():
    snapshot = GOOD._replace(revision="0009", objects=frozenset(), owners={"a": ["x"], "b": ["y"]})

    assert [finding.name for finding in judge_database(snapshot, NEEDS)] == [
        "schema",
        "server",
        "extensions",
        "settings",
    ]


def test_many_faults_of_one_kind_are_named_by_the_first_and_a_number():
    snapshot = GOOD._replace(invalid_indexes=[f"index_{number}" for number in range(9)])

    (found,) = [finding for finding in judge_database(snapshot, NEEDS) if finding.name == "indexes"]

    assert found.what.endswith("index_4, index_5 and 3 more")
