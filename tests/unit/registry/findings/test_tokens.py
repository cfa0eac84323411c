"""What a checkup says of model servers' tokens."""

import pytest

from understudy.registry.findings.finding import State
from understudy.registry.findings.tokens import judge_token_hosts, judge_token_wire

TOKEN = "UNDERSTUDY_BACKEND_TOKEN_CHURN"  # the name of a variable, not a secret


def test_a_token_that_may_go_to_any_host_is_worth_a_look_and_one_with_its_list_is_good():
    listed, unlisted = judge_token_hosts({f"{TOKEN}_HOSTS", TOKEN, "UNDERSTUDY_BACKEND_TOKEN_TASTE"}, "_HOSTS")

    assert (listed.name, listed.state) == (f"token {TOKEN}", State.GOOD)
    assert unlisted.state is State.WARNING
    assert "UNDERSTUDY_BACKEND_TOKEN_TASTE_HOSTS is not set" in unlisted.what
    assert "UNDERSTUDY_BACKEND_TOKEN_TASTE_HOSTS" in unlisted.next_step


def test_without_tokens_there_is_nothing_to_say_of_them():
    assert judge_token_hosts({f"{TOKEN}_HOSTS"}, "_HOSTS") == []


@pytest.mark.parametrize("endpoint", ["churn:8001", "10.0.0.7:8001", "[2001:db8::7]:8001", "localhost.example:8001"])
def test_a_token_in_plain_text_to_another_machine_is_worth_a_look(endpoint: str):
    (finding,) = judge_token_wire("visits", "2", TOKEN, ["127.0.0.1:8001", endpoint])

    assert (finding.name, finding.state) == ("visits 2 token", State.WARNING)
    assert f"{TOKEN} goes in plain text to {endpoint}:" in finding.what
    assert '"tls": true' in finding.next_step


def test_a_token_that_stays_on_this_machine_is_read_by_no_network():
    endpoints = ["127.0.0.1:8001", "localhost:8001", "[::1]:8001", "[::ffff:127.0.0.2]:8001", "no endpoint"]

    assert judge_token_wire("visits", "2", TOKEN, endpoints) == []


def test_of_many_servers_that_get_a_token_in_plain_text_the_first_are_named():
    (finding,) = judge_token_wire("visits", "2", TOKEN, [f"s{number}:1" for number in range(20)])

    assert "s7:1 and 12 more:" in finding.what
