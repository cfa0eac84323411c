from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.upstream.endpoint_rules import (
    NO_RULES,
    Target,
    grpc_target,
    judge_address,
    parse_rules,
    parse_target,
    plain_address,
)

FORBIDDEN = [
    "169.254.169.254",
    "169.254.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "::a9fe:a9fe",
    "fe80::1",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd00:c1::a9fe:a9fe",
    "fd20:ce::254",
    "fd00:42::42",
    "fec0::1",
    "2001:0:a9fe:a9fe::1",
    "100.100.100.200",
    "168.63.129.16",
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "224.0.0.1",
    "255.255.255.255",
    "ff02::1",
]


@pytest.mark.parametrize("address", FORBIDDEN)
@pytest.mark.parametrize("rules", ["", "0.0.0.0/0,::/0,*"])
def test_some_addresses_are_forbidden_whatever_the_operators_list_says(address, rules):
    assert judge_address("models.example.org", ip_address(address), parse_rules(rules)) is not None


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "192.168.0.9", "8.8.8.8", "2001:db8::1", "fd00::1", "2001:1::1", "fd20::1"]
)
def test_without_a_list_every_other_address_is_fine(address):
    assert judge_address("models.example.org", ip_address(address), NO_RULES) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_a_name_may_not_resolve_to_loopback_unless_it_says_so(address):
    here = ip_address(address)

    assert "the name is not localhost" in (judge_address("models.example.org", here, NO_RULES) or "")
    assert judge_address("localhost", here, NO_RULES) is None
    assert judge_address("127.0.0.1", here, NO_RULES) is None
    assert judge_address("models.example.org", here, parse_rules("127.0.0.0/8, ::1")) is None


def test_a_list_permits_by_network_or_by_name_and_nothing_else():
    rules = parse_rules("10.0.0.0/8, *.models.internal, 192.168.7.7")

    assert judge_address("anything", ip_address("10.250.0.1"), rules) is None
    assert judge_address("a.models.internal", ip_address("8.8.8.8"), rules) is None
    assert judge_address("anything", ip_address("192.168.7.7"), rules) is None
    assert "operator's list" in (judge_address("anything", ip_address("192.168.7.8"), rules) or "")
    assert "operator's list" in (judge_address("models.internal", ip_address("8.8.8.8"), rules) or "")
    assert "operator's list" in (judge_address("localhost", ip_address("127.0.0.1"), parse_rules("x")) or "")


@pytest.mark.parametrize("text", ["10.0.0.0/33", "http://m", "a b", "10.0.0.1/8", "[::1]"])
def test_an_entry_that_is_no_network_address_or_name_is_named(text):
    with pytest.raises(ValueError, match="neither a network"):
        parse_rules(f"10.0.0.0/8,{text}")


@given(st.integers(0, 2**32 - 1))
def test_an_ipv4_address_is_judged_alike_in_every_notation(number):
    plain = ip_address(number)
    mapped, nat64 = ip_address((0xFFFF << 32) + number), ip_address(int(ip_address("64:ff9b::")) + number)

    assert plain_address(mapped) == plain_address(nat64) == plain
    assert judge_address("m", mapped, NO_RULES) == judge_address("m", plain, NO_RULES)


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [("m:1", Target("m", 1)), ("M.Example.org.:80", Target("m.example.org", 80)), ("[::1]:9000", Target("::1", 9000))],
)
def test_an_endpoint_is_taken_apart(endpoint, target):
    assert parse_target(endpoint) == target


@pytest.mark.parametrize(
    "endpoint", ["unix:/s", "unix:80", "http://m:80", "u@m:80", "m", "m:0", "m:65536", ":80", "::1:80", "a%b:80", ""]
)
def test_what_is_no_host_and_port_is_refused(endpoint):
    if endpoint == "unix:80":  # a host of that name: with the address given, gRPC sees no scheme
        assert parse_target(endpoint) == Target("unix", 80)
        return
    with pytest.raises(ValueError, match="host:port"):
        parse_target(endpoint)


def test_grpc_is_told_addresses_and_never_a_name():
    four, six = ip_address("10.0.0.1"), ip_address("2001:db8::1")

    assert grpc_target([four, ip_address("10.0.0.2")], 80) == "ipv4:10.0.0.1:80,10.0.0.2:80"
    assert grpc_target([six, four], 80) == "ipv6:[2001:db8::1]:80,[::ffff:10.0.0.1]:80"


@pytest.mark.parametrize(
    ("address", "hidden"),
    [
        ("2002:a9fe:a9fe::1", "169.254.169.254"),
        ("64:ff9b:1::a9fe:a9fe", "169.254.169.254"),
        ("64:ff9b:1:a9fe:a9:fe00::", "169.254.169.254"),
        ("::ffff:0:a9fe:a9fe", "169.254.169.254"),
        ("2002:7f00:1::", "127.0.0.1"),
    ],
)
def test_an_address_that_a_router_makes_a_forbidden_one_of_is_refused_as_that_one(address, hidden):
    why = judge_address("models.internal", ip_address(address), parse_rules(f"models.internal,{address}"))

    assert why is not None
    assert why.startswith(f"leads to {hidden}, which is ")


@pytest.mark.parametrize("address", ["2002:a01:203::1", "64:ff9b:1::a01:203", "::ffff:0:a01:203", "2001:db8::1"])
def test_an_address_that_a_router_makes_a_permitted_one_of_is_permitted(address):
    assert judge_address("models.internal", ip_address(address), parse_rules("")) is None
