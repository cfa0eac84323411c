import pytest

from understudy.registry.findings.finding import State
from understudy.registry.findings.servers import judge_roles, judge_wire


@pytest.mark.parametrize(
    ("url", "state"),
    [
        ("postgresql://u:secret@db.example.org/x", State.WARNING),
        ("postgresql://u:secret@db.example.org/x?sslmode=require", State.WARNING),
        ("postgresql://u:secret@db.example.org/x?sslmode=verify-full&sslrootcert=/ca.pem", State.GOOD),
        ("redis://:secret@cache.example.org", State.WARNING),
        ("rediss://:secret@cache.example.org?ssl_ca_certs=/ca.pem", State.GOOD),
    ],
)
def test_a_wire_to_another_machine_is_judged_without_showing_its_url(url, state):
    (finding,) = judge_wire("it", url)

    assert finding.state is state
    assert "secret" not in str(finding)


@pytest.mark.parametrize(
    "url",
    ["", "postgresql://127.0.0.1/x", "redis://localhost:6379", "postgresql://[::1]/x", "postgresql:///x", "http://[x"],
)
def test_a_wire_that_stays_on_this_machine_needs_no_tls(url):
    assert judge_wire("it", url) == []


def test_missing_roles_are_named_with_what_to_do():
    missing, good = judge_roles(["understudy_proxy"]), judge_roles([])

    assert (missing.state, good.state) == (State.WARNING, State.GOOD)
    assert "understudy_proxy" in missing.what
    assert "CREATE ROLE" in missing.next_step
