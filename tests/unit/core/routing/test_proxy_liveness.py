"""Which proxies confirm a change, and what is said of those that cannot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.routing.proxy_liveness import (
    FORGOTTEN_SECONDS,
    LIVE_SECONDS,
    MAX_NAMED,
    NONE_STALE,
    StaleProxies,
    StaleProxy,
    is_confirmed,
    is_confirmed_since,
    is_live,
    live_proxies_words,
    stale_proxies_words,
)

counts = st.integers(0, 50)
ages = st.floats(LIVE_SECONDS, FORGOTTEN_SECONDS)


def stale_for(*seconds: float) -> StaleProxies:
    proxies = [StaleProxy(f"web-{number}:4711", age) for number, age in enumerate(sorted(seconds))]
    return StaleProxies(len(proxies), tuple(proxies[:MAX_NAMED]))


def test_a_proxy_is_live_until_the_bound_and_stale_after_it():
    assert is_live(0.0)
    assert is_live(LIVE_SECONDS)
    assert not is_live(LIVE_SECONDS + 0.001)


@given(counts, counts)
def test_a_generation_is_confirmed_by_all_live_proxies_and_never_by_none(live, on_generation):
    assert is_confirmed(live, on_generation) == (live > 0 and on_generation >= live)
    assert not is_confirmed(0, on_generation)


@given(st.lists(ages, max_size=8), st.floats(0, 60))
def test_who_was_live_at_a_change_and_turned_stale_has_not_confirmed_it(seconds, waited):
    stale = stale_for(*seconds)
    turned_stale_meanwhile = any(age - waited <= LIVE_SECONDS for age in seconds)

    assert is_confirmed_since(5, 5, stale, waited) != turned_stale_meanwhile
    assert not is_confirmed_since(5, 4, stale, waited)
    assert not is_confirmed_since(0, 0, stale, waited)


@pytest.mark.parametrize(
    ("live", "on_generation", "said"),
    [
        (6, 5, "5 of 6 live proxies act on the policy"),
        (0, 0, "no live proxy: which policy is served is unknown"),
    ],
)
def test_how_many_act_on_a_policy_is_said_in_words(live, on_generation, said):
    assert live_proxies_words(live, on_generation) == said


def test_a_stale_proxy_is_named_with_what_it_means():
    said = stale_proxies_words(stale_for(121.4))

    assert said == "1 stale proxy may still send traffic by the old policy: web-0:4711, no report for 2 m 1 s"
    assert stale_proxies_words(NONE_STALE) == ""


def test_of_many_stale_proxies_the_latest_are_named_and_the_others_counted():
    stale = stale_for(*range(60, 60 + 7 * 60, 60))

    assert stale_proxies_words(stale).startswith(
        "7 stale proxies may still send traffic by the old policy: web-0:4711, "
    )
    assert stale_proxies_words(stale).count("no report for") == MAX_NAMED
    assert stale_proxies_words(stale).endswith("no report for 5 m; and 2 more")


def test_stale_proxies_are_told_to_programs_as_a_count_and_a_bounded_list():
    assert stale_for(31.0).to_json() == {"count": 1, "first": [{"instance": "web-0:4711", "seconds": 31.0}]}
