"""Which addresses of a name are replicas after an answer."""

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.upstream.discovered import MAX_DISCOVERED, discovered
from understudy.core.upstream.endpoint_rules import Address

addresses = st.lists(st.ip_addresses(), max_size=20, unique=True)


def numbered(numbers: range) -> list[Address]:
    return [ip_address(f"10.0.{number // 256}.{number % 256}") for number in numbers]


@given(addresses, addresses)
def test_they_are_those_of_the_answer_and_who_stays_keeps_its_place(known, found):
    kept = [address for address in known if address in found]

    after = discovered(known, found)

    assert set(after) == set(found)
    assert len(after) == len(found)
    assert after[: len(kept)] == kept


@given(addresses, st.randoms())
def test_the_order_of_an_answer_changes_nothing(found, random):
    shuffled = random.sample(found, len(found))

    assert discovered([], found) == discovered([], shuffled)
    assert discovered(discovered([], found), shuffled) == discovered([], found)


def test_where_an_answer_has_too_many_those_that_serve_are_kept():
    known = numbered(range(400, 500))

    after = discovered(known, numbered(range(600)))

    assert len(after) == MAX_DISCOVERED
    assert after[:100] == known
    assert after[100:] == numbered(range(MAX_DISCOVERED - 100))
