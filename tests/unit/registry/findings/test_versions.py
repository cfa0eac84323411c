"""What the figures of a look at one version mean."""

import pytest

from understudy.core.rollout.state import WarmUpResult
from understudy.core.schema.input_diff import NO_DIFFERENCES, InputDifferences
from understudy.ports.upstream.model_backend import ServerSeen
from understudy.registry.findings.finding import State
from understudy.registry.findings.versions import judge_each_server, judge_inputs, judge_status, judge_warm_up

READY = ServerSeen("10.0.0.7:8001", 0.002)
AWAY = ServerSeen("10.0.0.8:8001", 2.0, "nothing listens there")


@pytest.mark.parametrize(
    ("servers", "states"),
    [
        ([READY], [State.GOOD]),
        ([READY, AWAY], [State.GOOD, State.WARNING]),
        ([AWAY], [State.PROBLEM]),
        ([AWAY, AWAY], [State.PROBLEM, State.PROBLEM]),
    ],
    ids=["well", "one away", "the only one away", "all away"],
)
def test_a_server_that_is_away_is_a_problem_when_no_other_one_serves(servers, states):
    findings = judge_each_server("visits", "2", servers, 0.5)

    assert [finding.state for finding in findings] == states


def test_each_server_is_named_with_what_it_said_and_how_long_that_took():
    ready, away = judge_each_server("visits", "2", [READY, AWAY], 0.5)

    assert ready.what == "10.0.0.7:8001 says in 2 ms that it serves the version"
    assert away.what == "10.0.0.8:8001: nothing listens there (2.0 s)"
    assert "understudy version remove-endpoint visits 2 10.0.0.8:8001" in away.next_step


def test_of_an_address_that_its_name_leads_to_the_name_is_not_to_be_taken_away():
    away = ServerSeen("triton.models.svc:8001", 2.0, "nothing listens there", "10.0.0.8")

    ready, lost = judge_each_server("visits", "2", [away._replace(problem="", address="10.0.0.7"), away], 0.5)

    assert ready.what.startswith("triton.models.svc:8001 at 10.0.0.7 says in ")
    assert lost.what == "triton.models.svc:8001 at 10.0.0.8: nothing listens there (2.0 s)"
    assert "remove-endpoint" not in lost.next_step


def test_servers_that_live_proxies_reach_are_well_though_this_process_does_not_reach_them():
    (finding,) = judge_each_server("visits", "2", [AWAY], 0.5, ("web-1:7", "web-2:7"))

    assert finding.state is State.GOOD
    assert finding.what == (
        "10.0.0.8:8001 is reached through each of 2 live proxies, and not from here: nothing listens there"
    )


@pytest.mark.parametrize(("seconds", "state"), [(0.5, State.GOOD), (0.51, State.WARNING)])
def test_a_server_that_needs_longer_to_say_that_it_serves_than_a_call_may_take_is_worth_a_look(seconds, state):
    (finding,) = judge_each_server("visits", "2", [ServerSeen("slow:1", seconds)], 0.5)

    assert finding.state is state


def test_a_version_without_a_model_server_is_a_problem_and_the_command_that_names_one_can_be_pasted():
    (finding,) = judge_each_server("my visits", "2", [], 0.5)

    assert finding.state is State.PROBLEM
    assert "understudy version add-endpoint 'my visits' 2 HOST:PORT" in finding.next_step


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (NO_DIFFERENCES, State.GOOD, "every call that fits 1 fits 2 too"),
        (
            InputDifferences(possible=("age: fewer values",)),
            State.WARNING,
            "a call that fits 1 may fail at 2 (422): age: fewer values",
        ),
        (
            InputDifferences(("city: new",), ("age: fewer values",)),
            State.PROBLEM,
            "a call that fits 1 fails at 2 (422): city: new; age: fewer values",
        ),
    ],
    ids=["none", "some", "all"],
)
def test_inputs_at_which_every_call_fails_are_a_problem_and_at_which_some_may_a_warning(found, state, words):
    finding = judge_inputs("1", "2", found)

    assert (finding.state, finding.what) == (state, words)


@pytest.mark.parametrize(
    ("result", "state"),
    [
        (WarmUpResult(passed=True, detail="5 example calls answered"), State.GOOD),
        (WarmUpResult(passed=False, detail="it timed out"), State.PROBLEM),
        (None, State.WARNING),
    ],
    ids=["answered", "refused", "nobody to call"],
)
def test_example_calls_that_are_not_answered_are_a_problem(result, state):
    finding = judge_warm_up(result)

    assert finding.state is state
    assert result is None or finding.what == result.detail


def test_only_of_a_retired_version_is_its_status_worth_a_word():
    assert [judge_status("visits", "2", status) for status in ("staging", "champion", "shadow")] == [[], [], []]
    (finding,) = judge_status("visits", "2", "retired")
    assert finding.state is State.PROBLEM
    assert finding.next_step == "understudy version restore visits 2 makes it staging again."
