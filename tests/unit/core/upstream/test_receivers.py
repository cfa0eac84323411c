"""Receivers of notifications, as the setting names them."""

import pytest

from understudy.core.upstream.receivers import MAX_RECEIVERS, parse_receivers, receiver_target, signing_key


def test_receivers_are_named_by_lines_or_spaces_and_comments_are_none():
    found = parse_receivers(
        "# who is told\nops-chat=https://hooks.slack.example/services/T0/B0/x  bus=http://events:8080/in?key=a=b\n"
    )

    assert found == {
        "ops-chat": "https://hooks.slack.example/services/T0/B0/x",
        "bus": "http://events:8080/in?key=a=b",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("https://host/s3cr3t", "entry 1 is not name="),
        ("Ops=https://host/s3cr3t", "entry 1 is not name="),
        ("a=https://host/x b", "entry 2 is not name="),
        ("a=https://host/s3cr3t a=https://host/x", "the receiver a is there twice"),
        ("a=ftp://host/s3cr3t", "the receiver a: expected https://"),
        ("a=https://host:s3cr3t/x", "the receiver a: "),
        ("a=http://169.254.169.254/s3cr3t", "the receiver a: its address is link-local"),
        ("a=http://[fd00:ec2::254]/s3cr3t", "the receiver a: its address is a cloud's metadata service"),
        ("a=http://0.0.0.0/s3cr3t", "the receiver a: its address is the unspecified address"),
        (" ".join(f"r{number}=http://h/" for number in range(MAX_RECEIVERS + 1)), "at most 100"),
    ],
)
def test_what_is_wrong_is_said_by_name_and_without_the_address(text, why):
    with pytest.raises(ValueError, match=r"receiver|entry") as said:
        parse_receivers(text)

    assert why in str(said.value)
    assert "s3cr3t" not in str(said.value)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://Host.example./x", "host.example", 443),
        ("http://user:word@host/x", "host", 80),
        ("http://[::1]:81/", "::1", 81),
    ],
)
def test_an_address_leads_to_a_host_and_a_port(url, host, port):
    assert receiver_target(url) == (host, port)


@pytest.mark.parametrize("text", ["", "s3cr3t", "whsec_", "whsec_s3cr3t", f"whsec_{'A' * 92}", f"whsec_{'A' * 31}!"])
def test_a_secret_that_is_none_is_refused_without_a_part_of_it(text):
    with pytest.raises(ValueError, match="expected whsec_ and 24 to 64 bytes") as said:
        signing_key(text)

    assert "s3cr3t" not in str(said.value)
