"""A warm-up by live proxies, of a version whose model servers only they reach: what their answers add up to.

Proxies write their own answers, so whatever is no possible answer counts as none.
"""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from math import isfinite
from typing import NamedTuple

from understudy.core.durations import short_duration
from understudy.core.rollout.state import WarmUpResult
from understudy.core.routing.proxy_liveness import MAX_NAMED
from understudy.core.upstream.endpoint_rules import LOOPBACK_NAMES, parse_target

MAX_INSTANCES = 10_000
"""Live proxies that a request names; the table has the same number."""
MAX_REPLAYING = 8
"""Machines of which one proxy each is sent the logged calls: more calls would tell no more."""
MAX_PROBLEM_CHARACTERS = 300
MAX_NAME_CHARACTERS = 200
IS_OLD = "its release answers no warm-ups: upgrade it"
IS_UNREADABLE = "its answer cannot be read"


class LiveProxy(NamedTuple):
    """A proxy that has reported of late."""

    instance: str
    """``host:pid``."""
    answers_warm_ups: bool
    """Whether its release does."""


class ProxyAnswer(NamedTuple):
    """What a proxy found of a version's model servers."""

    answered: int = 0
    """Example calls that were answered."""
    seconds: tuple[float, ...] = ()
    """How long each of them took."""
    problem: str = ""
    """Why not all were; empty: the version is ready there."""
    scores: tuple[float | None, ...] = ()
    """Of each logged call that was sent again; ``None`` where it was not answered with a score."""


def is_possible(answer: ProxyAnswer, example_calls: int, logged_calls: int, most_seconds: float) -> bool:
    """Whether a proxy that was asked this can have answered so."""
    return (
        0 <= answer.answered <= example_calls
        and len(answer.seconds) <= example_calls
        and all(isfinite(taken) and 0 <= taken <= most_seconds for taken in answer.seconds)
        and len(answer.scores) in (0, logged_calls)
        and all(score is None or isfinite(score) for score in answer.scores)
        and (answer.problem != "" or answer.answered in (0, example_calls))
    )


def judge_proxies(
    live: Sequence[LiveProxy], answers: Mapping[str, ProxyAnswer | None], waited_seconds: float
) -> WarmUpResult:
    """Return whether the version is ready at every live proxy, each of which may have a model server of its own.

    Args:
        live: All of them, at least one.
        answers: What they answered by their names; ``None``: an impossible answer.
        waited_seconds: How long they had for it.
    """
    problems = {proxy.instance: _problem_of(proxy, answers, waited_seconds) for proxy in live}
    failed = [f"{_clipped(name, MAX_NAME_CHARACTERS)}: {why}" for name, why in problems.items() if why]
    if failed:
        more = [f"and {len(failed) - MAX_NAMED} more"] if len(failed) > MAX_NAMED else []
        ready = f"{len(live) - len(failed)} of {len(live)} live proxies find it ready"
        well = f"no model server is reached from here, and {ready}"
        return WarmUpResult(passed=False, detail="; ".join([well, *failed[:MAX_NAMED], *more]))
    found = [answer for answer in answers.values() if answer is not None]
    calls = max(answer.answered for answer in found)
    slowest = max((taken for answer in found for taken in answer.seconds), default=None)
    made = f"{calls} example calls answered" if calls else "ready"
    took = f", the slowest in {short_duration(slowest)}" if slowest is not None else ""
    return WarmUpResult(passed=True, detail=f"{made} {through_words(len(live))}{took}", proxies=tuple(problems))


def through_words(proxies: int) -> str:
    """Return by which way a version was called."""
    return "through 1 live proxy" if proxies == 1 else f"through each of {proxies} live proxies"


def one_of_each_machine(instances: Sequence[str]) -> list[str]:
    """Return a proxy of each machine, of :data:`MAX_REPLAYING` machines at most: its workers share a model server."""
    chosen: dict[str, str] = {}
    for instance in sorted(instances):
        chosen.setdefault(machine_of(instance), instance)
    return list(chosen.values())[:MAX_REPLAYING]


def machine_of(instance: str) -> str:
    """Return the machine in a proxy's name."""
    return instance.rpartition(":")[0]


def are_loopback(endpoints: Sequence[str]) -> bool:
    """Whether all endpoints say loopback, so that each machine, or pod, has model servers of its own."""
    return bool(endpoints) and all(map(_says_loopback, endpoints))


def clipped(text: str) -> str:
    """Return a problem as it may be stored and shown: one line, printable, of bounded length."""
    return _clipped(text, MAX_PROBLEM_CHARACTERS)


def _says_loopback(endpoint: str) -> bool:
    try:
        host = parse_target(endpoint).host
        return host in LOOPBACK_NAMES or ip_address(host).is_loopback
    except ValueError:
        return False


def _problem_of(proxy: LiveProxy, answers: Mapping[str, ProxyAnswer | None], waited_seconds: float) -> str:
    if not proxy.answers_warm_ups:
        return IS_OLD
    if proxy.instance not in answers:
        return f"it did not answer within {waited_seconds:g} s"
    answer = answers[proxy.instance]
    return IS_UNREADABLE if answer is None else clipped(answer.problem)


def _clipped(text: str, characters: int) -> str:
    words = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    return words if len(words) <= characters else f"{words[: characters - 1]}…"
