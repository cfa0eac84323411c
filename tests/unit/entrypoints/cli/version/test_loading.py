"""What ``version load`` and ``version show`` say of the servers of a version."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from understudy.core.loading.replicas import EVERY_SERVER, Replicas
from understudy.entrypoints.cli.shared.errors import CommandRefused
from understudy.entrypoints.cli.version.loading import (
    has_given_up,
    is_loaded,
    obstacles,
    require_replicas,
    servers_text,
    too_few_texts,
)
from understudy.entrypoints.documents.loading import loaded_words, loading_document
from understudy.ports.loading.loading_registry import (
    ServerRecord,
    ValidationRecord,
    VersionAtServerRecord,
    VersionLoadingRecord,
)

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def at_server(**changes: Any) -> VersionAtServerRecord:
    values = {
        "server": "onnx-0",
        "why": "champion",
        "state": "AVAILABLE",
        "attempt": 0,
        "error_code": None,
        "error": None,
        "digest": None,
        "updated_at": NOON,
        "will_retry": False,
        "group_name": "onnx",
    }
    return VersionAtServerRecord(**{**values, **changes})


def a_record(*servers: VersionAtServerRecord) -> VersionLoadingRecord:
    return VersionLoadingRecord("churn", "7", "onnx", None, is_kept=True, pinned_digest=None, servers=servers)


def said(record: VersionLoadingRecord, *servers: ServerRecord) -> str:
    console = Console(file=io.StringIO(), width=100)
    for part in servers_text(record, servers):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_server_is_shown_with_its_state_and_why_it_has_the_version():
    text = said(a_record(at_server(), at_server(server="onnx-1", state=None, updated_at=None)))

    assert "onnx-0" in text
    assert "champion" in text
    assert "AVAILABLE" in text
    assert "onnx-1" in text


def test_a_failure_is_shown_with_its_code_the_servers_words_and_the_attempt():
    failed = at_server(state="ERROR", error_code="E217", error="the model server says: no model", attempt=3)

    assert "onnx-0: E217 the model server says: no model (attempt 3)" in said(a_record(failed))


def test_what_was_not_tried_for_want_of_room_is_shown_without_an_attempt():
    assert said(a_record(at_server(state="ERROR", error_code="E214", error="no room"))).rstrip().endswith("no room")


def test_a_version_at_a_server_that_does_not_answer_is_not_shown_as_available():
    fine = ServerRecord("onnx-0", "onnx", "10.0.0.7:8500", "understudy 1", "", 3.0, wanted=1, available=1, failed=0)
    away = fine._replace(problem="E215 the model server's control at 10.0.0.7:8501: connection refused")
    other = away._replace(name="onnx-9")

    text = said(a_record(at_server()), away, other)

    assert "was AVAILABLE: control refused (E215)" in text
    assert "onnx-0 did not answer its agent 3 s ago: E215 the model server's control" in text
    assert "onnx-9" not in text
    assert "was" not in said(a_record(at_server()), fine)


def test_without_a_server_it_is_said_which_group_has_none():
    assert "No server of onnx has been given it yet." in said(a_record())


def test_the_document_has_the_servers_as_objects():
    document = loading_document(a_record(at_server()))

    assert document["group_name"] == "onnx"
    assert document["servers"][0]["state"] == "AVAILABLE"


def test_it_is_said_where_and_how_long_a_version_is_loaded():
    kept = a_record()
    until = kept._replace(is_kept=False, wanted_until=NOON + timedelta(hours=2), replicas=Replicas(1, 3))

    assert loaded_words(kept, NOON) == "by agents of onnx, until it is unloaded"
    assert (
        loaded_words(until, NOON)
        == "by agents of onnx, on 1..3 of its servers, until 20 Nov 14:00 UTC, and while it has a role"
    )
    assert loaded_words(until, NOON + timedelta(hours=3)).endswith("its servers, for as long as it has a role")


def test_a_version_is_loaded_once_every_server_of_its_group_that_is_to_have_it_has_it():
    assert not is_loaded(a_record())
    assert is_loaded(a_record(at_server(), at_server(server="onnx-1", why=None, state="END")))
    assert not is_loaded(a_record(at_server(), at_server(server="onnx-1", state="LOADING")))


def test_a_version_is_not_loaded_while_a_server_of_its_group_has_not_been_given_it_yet():
    record = a_record(at_server(), at_server(server="onnx-1", why=None, state="END"))
    there = ServerRecord("onnx-0", "onnx", "a:1", "", "", 3.0, wanted=1, available=1, failed=0)
    undecided = there._replace(name="onnx-1")
    other_group, silent, away = (
        undecided._replace(group_name="demo"),
        undecided._replace(seen_seconds=900.0),
        undecided._replace(problem="E215 away"),
    )

    draining = undecided._replace(is_draining=True)
    missing = record._replace(servers=(at_server(), at_server(server="onnx-1", state="END")))

    assert not is_loaded(record, [there, undecided])
    assert is_loaded(record, [there, draining])
    assert is_loaded(missing, [there, draining._replace(seen_seconds=900.0)])
    assert not is_loaded(missing, [there, undecided])
    assert is_loaded(record._replace(replicas=Replicas(1, 1)), [there, undecided])
    assert is_loaded(record, [there, other_group, silent, away])


def test_a_version_for_some_servers_is_loaded_once_so_many_have_it():
    one = a_record(at_server())._replace(replicas=Replicas(2, 3))
    two = one._replace(servers=(at_server(), at_server(server="onnx-1"), at_server(server="onnx-2", state="LOADING")))
    away = ServerRecord("onnx-1", "onnx", "a:1", "", "E215 away", 3.0, wanted=1, available=1, failed=0)

    assert [is_loaded(one), is_loaded(two), is_loaded(two, [away])] == [False, True, False]
    assert loading_document(one)["replicas"] == "2..3"


def test_it_is_said_whether_servers_are_missing_or_have_no_room_where_too_few_have_been_given_a_version():
    one = a_record(at_server())._replace(replicas=Replicas(2, 3))
    two = one._replace(servers=(at_server(), at_server(server="onnx-1")))
    there = ServerRecord("onnx-0", "onnx", "a:1", "", "", 3.0, wanted=1, available=1, failed=0)
    away = there._replace(name="onnx-1", problem="E215 away")

    def lines(record: VersionLoadingRecord, *servers: ServerRecord) -> list[str]:
        return [line.plain for line in too_few_texts(record, servers)]

    assert lines(a_record(at_server()), there) == lines(two, there) == []
    assert lines(one._replace(servers=[at_server(why=None)]), there) == []
    given = "✖ E214 1 of 2..3 servers of onnx have been given it: "
    assert lines(one, there, there._replace(name="onnx-1")) == [
        f"{given}no other one has room; make room, start a further server, or ask for fewer by --replicas"
    ]
    assert lines(one, there, away, there._replace(name="models-a", group_name="demo")) == [
        f"{given}the group has 1 that answers; start a further one, or ask for fewer by --replicas"
    ]


def test_what_a_load_waits_for_is_told_by_its_cause_and_not_by_its_figures():
    short = at_server(state="ERROR", error_code="E214", error="17 MiB are left", will_retry=True)
    there = ServerRecord("onnx-0", "onnx", "a:1", "", "", 3.0, wanted=1, available=1, failed=0)
    away = there._replace(problem="E215 nothing listens")

    assert obstacles(a_record(at_server(state="LOADING")), [there]) == {}
    assert obstacles(a_record(short), [there]) == {"onnx-0 E214": "waiting: onnx-0: E214 17 MiB are left"}
    assert obstacles(a_record(short._replace(error="16 MiB are left")), [there]).keys() == {"onnx-0 E214"}
    assert obstacles(a_record(short), [away]) == {"onnx-0 away": "waiting: onnx-0: control refused (E215)"}
    assert "the group has 1 that answers" in obstacles(a_record()._replace(replicas=Replicas(2, 2)), [there])["number"]


def test_a_proxy_that_takes_no_notice_of_a_number_of_servers_is_named():
    two = a_record()._replace(replicas=Replicas(2, 2))

    require_replicas(None, two)
    require_replicas(Replicas(2, 2), two)
    require_replicas(EVERY_SERVER, a_record())
    with pytest.raises(CommandRefused, match="knows no --replicas: churn 7 is wanted on the servers of onnx"):
        require_replicas(Replicas(2, 2), a_record())


def test_servers_of_the_group_that_a_version_is_moved_away_from_are_not_waited_for():
    before = at_server(server="old-0", group_name="old")

    assert not is_loaded(a_record(before))
    assert not is_loaded(a_record(before, at_server(state="FETCHING")))
    assert is_loaded(a_record(before._replace(state="FETCHING"), at_server()))


def test_only_a_server_of_the_group_that_is_to_have_a_version_can_give_up():
    failed = at_server(state="ERROR")

    assert has_given_up(a_record(failed))
    assert not has_given_up(a_record(failed._replace(will_retry=True)))
    assert not has_given_up(a_record(failed._replace(why=None)))
    assert not has_given_up(a_record(failed._replace(group_name="old")))


def test_each_validation_is_a_line_and_one_that_holds_no_more_is_named_with_what_to_run():
    holds = ValidationRecord("onnx-0", "a:1", "onnx 1", None, True, "3 cases answered", NOON, "onnx-0", None)
    stale = holds._replace(server="onnx-1", problem="onnx-1 validated it as onnx 1, and is onnx 2 now")
    record = a_record(at_server())._replace(
        requires_validation=True, validations=[holds, stale], unvalidated=stale.problem
    )

    text = " ".join(said(record).split())

    assert "✔ validated at onnx-0: 3 cases answered" in text
    assert "✖ onnx-1 validated it as onnx 1, and is onnx 2 now" in text
    assert "understudy version validate churn 7" in text
