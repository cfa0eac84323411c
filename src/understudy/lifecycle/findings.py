"""What the figures of a checkup mean: good, worth a look, or a problem, each with what to do next."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

CLOCK_WARNING_SECONDS, CLOCK_PROBLEM_SECONDS = 0.25, 1.0
"""Predictions are stamped by the proxy's clock and cut into windows by Postgres'."""
SLOW_SECONDS = 0.05
FRESH_SECONDS = 30.0
"""A proxy reports when its generations change and at least this often, as ``understudy_status`` assumes."""
MONTHS_AHEAD = 2


class State(StrEnum):
    """How a finding is."""

    GOOD = "good"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """One line of a checkup."""

    name: str
    state: State
    what: str
    next_step: str = ""


def judge_clock(ahead_seconds: float, round_trip_seconds: float) -> Finding:
    """Judge this machine's clock against Postgres'; half a round trip of the difference cannot be known."""
    off = max(0.0, abs(ahead_seconds) - round_trip_seconds / 2)
    side = "ahead of" if ahead_seconds > 0 else "behind"
    what = f"{abs(ahead_seconds) * 1_000:.0f} ms {side} Postgres"
    if off < CLOCK_WARNING_SECONDS:
        return Finding("clock", State.GOOD, what)
    state = State.PROBLEM if off >= CLOCK_PROBLEM_SECONDS else State.WARNING
    return Finding("clock", state, what, "Windows of the prediction log are cut wrong: enable NTP on this machine.")


def judge_partitions(last_month: str | None, this_month: str) -> Finding:
    """Judge how far ahead PredictionLog has partitions; both months are ``YYYY-MM``, in UTC."""
    make = "SELECT understudy_ensure_partitions() makes them."
    if last_month is None:
        return Finding("partitions", State.PROBLEM, "PredictionLog has none: nothing can be logged", make)
    ahead = _months(last_month) - _months(this_month)
    what = f"PredictionLog to the end of {last_month}"
    if ahead < 0:
        return Finding("partitions", State.PROBLEM, f"{what}: nothing can be logged any more", make)
    if ahead < MONTHS_AHEAD:
        return Finding("partitions", State.WARNING, f"{what}: {ahead} months ahead", make)
    return Finding("partitions", State.GOOD, what)


def judge_proxy(instance: str, acts_on: Mapping[str, int], policies: Mapping[str, int], age_seconds: float) -> Finding:
    """Judge one proxy: whether it lives, and acts on the newest generation of every model's policy."""
    name = f"proxy {instance}"
    seen = f"seen {age_seconds:.0f} s ago"
    if age_seconds > FRESH_SECONDS:
        return Finding(name, State.WARNING, f"{seen}: gone, or cut off from Postgres", "It is forgotten after a day.")
    behind = [
        f"{model} {acts_on.get(model, 'none')} instead of {newest}"
        for model, newest in policies.items()
        if acts_on.get(model) != newest
    ]
    if behind:
        advice = "It catches up within 5 s; if not, look at its log and at /readyz."
        return Finding(name, State.WARNING, f"{seen}, behind: {', '.join(behind)}", advice)
    return Finding(name, State.GOOD, f"{seen}, on the newest generation of {len(policies)} models")


def judge_servers(model: str, role: str, version: str, servers: int, *, ready: bool) -> Finding:
    """Judge the model servers of one role of one model."""
    name = f"{model} {version} {role}"
    state = State.PROBLEM if role == "champion" else State.WARNING
    if servers == 0:
        advice = f"Name one: INSERT INTO ModelEndpoint; understudy version show {model} {version} has the id."
        return Finding(name, state, "has no model server", advice)
    if not ready:
        what = f"served by none of its {_count(servers)}"
        return Finding(name, state, what, f"understudy version show {model} {version} shows where they should be.")
    return Finding(name, State.GOOD, f"served by {_count(servers)}")


def _count(servers: int) -> str:
    return f"{servers} model server{'' if servers == 1 else 's'}"


def _months(month: str) -> int:
    year, number = map(int, month.split("-"))
    return year * 12 + number
