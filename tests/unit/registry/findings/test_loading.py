import pytest

from understudy.ports.loading.loading_registry import (
    MissingVersion,
    ServerRecord,
    UnvalidatedVersion,
    ValidationRecord,
    VersionLoadingRecord,
)
from understudy.registry.findings.finding import State
from understudy.registry.findings.loading import judge_agents, judge_missing, judge_unvalidated, judge_validation

SERVER = ServerRecord("onnx-0", "onnx", "10.0.0.7:8500", "understudy 1", "", 1.0, wanted=3, available=2, failed=1)


NOWHERE = MissingVersion("visits", "1", "champion", "onnx", 0, (), has_endpoint=False)
NO_ROOM = "E214 no other server has room, or none is there"
NONE_REPORTS = "wanted as champion, and no agent reports a server of its group onnx"


@pytest.mark.parametrize(
    ("missing", "state", "said"),
    [
        (NOWHERE, State.PROBLEM, NONE_REPORTS),
        (NOWHERE._replace(has_endpoint=True), State.WARNING, NONE_REPORTS),
        (
            NOWHERE._replace(servers=2, without=("s0: ERROR E217 no", "s1: FETCHING")),
            State.PROBLEM,
            "wanted as champion, and 2 of 2 servers of onnx do not have it: s0: ERROR E217 no; s1: FETCHING",
        ),
        (
            NOWHERE._replace(servers=2, without=("s0: LOADING",), has_endpoint=True),
            State.WARNING,
            "wanted as champion, and 1 of 2 servers of onnx does not have it: s0: LOADING",
        ),
        (
            NOWHERE._replace(why="asked for", servers=5, without=("s0: a", "s1: b", "s2: c", "s3: d")),
            State.WARNING,
            "wanted as asked for, and 4 of 5 servers of onnx do not have it: s0: a; s1: b; s2: c; …",
        ),
        (
            NOWHERE._replace(servers=5, without=("s1: LOADING",), has_endpoint=True, replicas=2, has=1),
            State.WARNING,
            "wanted as champion, and is on 1 of the 2 servers of onnx that it is to be on: s1: LOADING",
        ),
        (
            NOWHERE._replace(servers=5, without=("s1: LOADING",), has_endpoint=True, replicas=3, has=1),
            State.WARNING,
            f"wanted as champion, and is on 1 of the 3 servers of onnx that it is to be on: {NO_ROOM}; s1: LOADING",
        ),
    ],
    ids=["no server", "agents silent", "nowhere", "one of two", "many", "one of two that it is for", "one has no room"],
)
def test_a_champion_that_no_call_can_reach_is_a_problem_and_all_else_that_is_missing_a_warning(missing, state, said):
    finding = judge_missing(missing)

    assert (finding.name, finding.state, finding.what) == ("visits 1 loading", state, said)
    assert "understudy version load visits 1" in finding.next_step


@pytest.mark.parametrize(
    ("server", "state", "said"),
    [
        (SERVER, State.GOOD, "2 of 3 wanted versions loaded, at 10.0.0.7:8500"),
        (SERVER._replace(seen_seconds=50), State.WARNING, "its agent has been silent for 50 s"),
        (
            SERVER._replace(seen_seconds=90),
            State.WARNING,
            "its agent has been silent for 1 m 30 s; proxies call it only for what no other server has",
        ),
        (SERVER._replace(problem="E215 it is off"), State.WARNING, "E215 it is off"),
        (
            SERVER._replace(is_draining=True, seen_seconds=90),
            State.GOOD,
            "draining: it is given no version until its agent is started anew, at 10.0.0.7:8500",
        ),
    ],
    ids=["good", "silent", "silent for a minute and a half", "off", "ended after a drain"],
)
def test_a_server_is_worth_a_look_while_its_agent_is_silent_or_its_control_is_away(server, state, said):
    (finding,) = judge_agents([server])

    assert (finding.name, finding.state, finding.what) == ("server onnx-0", state, said)


HOLDS = ValidationRecord("onnx-0", "a:1", "onnx 1", None, True, "3 cases answered", None, "onnx-0", None)
RECORD = VersionLoadingRecord("visits", "2", "onnx", None, is_kept=True, pinned_digest=None, servers=())
AGAIN = "understudy version validate visits 2"


@pytest.mark.parametrize(
    ("loading", "status", "found"),
    [
        (None, "staging", []),
        (RECORD, "staging", []),
        (RECORD._replace(validations=[HOLDS]), "staging", [(State.GOOD, "3 cases answered, at onnx-0 (onnx 1)", None)]),
        (
            RECORD._replace(validations=[HOLDS._replace(problem="onnx-0: case 1: no")]),
            "challenger",
            [(State.WARNING, "onnx-0: case 1: no", f"{AGAIN} --while-serving asks it anew.")],
        ),
        (
            RECORD._replace(unvalidated="onnx-0 has not validated it"),
            "staging",
            [
                (
                    State.PROBLEM,
                    "onnx-0 has not validated it; it gets no role, and no larger share",
                    f"{AGAIN} has it validated.",
                )
            ],
        ),
    ],
    ids=["of people", "never validated", "holds", "stale", "required"],
)
def test_a_check_says_whether_the_validation_of_a_version_holds(loading, status, found):
    findings = judge_validation(loading, status)

    assert [(one.state, one.what, one.next_step or None) for one in findings] == found


def test_doctor_names_a_version_whose_validation_holds_no_more_and_what_to_run():
    stale = UnvalidatedVersion("visits", "2", "champion", True, "onnx-0 validated it as onnx 1, and is onnx 2 now")

    finding = judge_unvalidated(stale)

    assert (finding.name, finding.state) == ("visits 2 validation", State.WARNING)
    assert finding.what == f"{stale.problem}; it gets no larger share until a validation holds"
    assert finding.next_step == f"{AGAIN} --while-serving asks it anew."
