import pytest

from understudy.lifecycle.loading_findings import judge_agents, judge_missing
from understudy.lifecycle.server_findings import State
from understudy.ports.loading.loading_registry import MissingVersion, ServerRecord

SERVER = ServerRecord("onnx-0", "onnx", "10.0.0.7:8500", "understudy 1", "", 1.0, wanted=3, available=2, failed=1)


NOWHERE = MissingVersion("visits", "1", "champion", "onnx", 0, (), has_endpoint=False)
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
    ],
    ids=["no server", "agents silent", "nowhere", "one of two", "many"],
)
def test_a_champion_that_no_call_can_reach_is_a_problem_and_all_else_that_is_missing_a_warning(missing, state, said):
    finding = judge_missing(missing)

    assert (finding.name, finding.state, finding.what) == ("visits 1 loading", state, said)
    assert "understudy version load visits 1" in finding.next_step


@pytest.mark.parametrize(
    ("server", "state", "said"),
    [
        (SERVER, State.GOOD, "2 of 3 wanted versions loaded, at 10.0.0.7:8500"),
        (SERVER._replace(seen_seconds=90), State.WARNING, "its agent has been silent for 1 m 30 s"),
        (SERVER._replace(problem="E215 it is off"), State.WARNING, "E215 it is off"),
    ],
    ids=["good", "silent", "off"],
)
def test_a_server_is_worth_a_look_while_its_agent_is_silent_or_its_control_is_away(server, state, said):
    (finding,) = judge_agents([server])

    assert (finding.name, finding.state, finding.what) == ("server onnx-0", state, said)
