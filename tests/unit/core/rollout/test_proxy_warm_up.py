"""What the answers of live proxies to a warm-up add up to, whatever they write."""

from math import inf, nan

import pytest

from understudy.core.rollout.proxy_warm_up import (
    MAX_PROBLEM_CHARACTERS,
    MAX_REPLAYING,
    LiveProxy,
    ProxyAnswer,
    are_loopback,
    clipped,
    is_possible,
    judge_proxies,
    one_of_each_machine,
)

WELL = ProxyAnswer(5, (0.002, 0.012, 0.003, 0.002, 0.002))
DEAD = ProxyAnswer(problem="no model server says that it is ready")


def live(*names: str, old: tuple[str, ...] = ()) -> list[LiveProxy]:
    return [LiveProxy(name, answers_warm_ups=name not in old) for name in names]


def test_a_version_that_every_live_proxy_finds_ready_has_passed_and_all_of_them_are_known():
    found = judge_proxies(live("web-1:7", "web-2:7"), {"web-1:7": WELL, "web-2:7": WELL}, 7)

    assert found.passed
    assert found.detail == "5 example calls answered through each of 2 live proxies, the slowest in 12 ms"
    assert found.proxies == ("web-1:7", "web-2:7")


@pytest.mark.parametrize(
    ("proxies", "answers", "said"),
    [
        (live("web-1:7", "web-2:7"), {"web-1:7": WELL, "web-2:7": DEAD}, "web-2:7: no model server says that it is"),
        (live("web-1:7", "web-2:7"), {"web-1:7": WELL}, "web-2:7: it did not answer within 7 s"),
        (live("web-1:7", "web-2:7"), {"web-1:7": WELL, "web-2:7": None}, "web-2:7: its answer cannot be read"),
        (live("web-1:7", "web-2:7", old=("web-2:7",)), {"web-1:7": WELL}, "web-2:7: its release answers no warm-ups"),
    ],
    ids=["dead server", "silent", "impossible", "release before"],
)
def test_one_proxy_that_does_not_find_it_ready_is_named_with_why_and_holds_it_back(proxies, answers, said):
    found = judge_proxies(proxies, answers, 7)

    assert not found.passed
    assert found.detail.startswith("no model server is reached from here, and 1 of 2 live proxies find it ready; ")
    assert said in found.detail
    assert found.proxies == ()


def test_of_many_that_fail_five_are_named_and_the_others_counted():
    found = judge_proxies(live(*(f"web-{number}:7" for number in range(9))), {}, 7)

    assert found.detail.count("did not answer") == 5
    assert found.detail.endswith("; and 4 more")


def test_a_version_of_which_no_example_can_be_made_up_is_ready_without_calls():
    assert judge_proxies(live("web-1:7"), {"web-1:7": ProxyAnswer()}, 7).detail == "ready through 1 live proxy"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (WELL, True),
        (DEAD, True),
        (ProxyAnswer(2, (0.1, 0.1), "the model server refused the call"), True),
        (ProxyAnswer(6, (0.1,) * 5), False),
        (ProxyAnswer(-1, ()), False),
        (ProxyAnswer(3, (0.1,) * 3), False),
        (ProxyAnswer(5, (0.1,) * 6), False),
        (ProxyAnswer(5, (nan,) * 5), False),
        (ProxyAnswer(5, (7.5,) * 5), False),
        (ProxyAnswer(5, (-0.1,) * 5), False),
        (ProxyAnswer(scores=(0.1, None)), True),
        (ProxyAnswer(scores=(0.1,)), False),
        (ProxyAnswer(scores=(0.1, inf)), False),
    ],
)
def test_only_what_a_proxy_can_have_found_counts(answer, expected):
    assert is_possible(answer, 5, 2, 7) == expected


def test_the_words_of_a_proxy_are_one_line_of_bounded_length():
    text = clipped("a\nb\t\x1b[31m" + "x" * 1_000)

    assert text.startswith("a b [31m")
    assert len(text) == MAX_PROBLEM_CHARACTERS


def test_calls_are_sent_again_by_one_worker_of_each_machine_and_by_a_few_machines():
    assert one_of_each_machine(["b:2", "a:9", "b:1", "a:3"]) == ["a:3", "b:1"]
    assert len(one_of_each_machine([f"web-{number}:1" for number in range(50)])) == MAX_REPLAYING


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        (["127.0.0.1:8500"], True),
        (["localhost:8500", "[::1]:8500"], True),
        (["127.0.0.1:8500", "tfs:8500"], False),
        (["10.0.0.7:8500"], False),
        (["nonsense"], False),
        ([], False),
    ],
)
def test_loopback_endpoints_are_each_machines_own(endpoints, expected):
    assert are_loopback(endpoints) == expected
