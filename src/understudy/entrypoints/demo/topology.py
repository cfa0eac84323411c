"""What the demo consists of: its model servers, what agents load onto them, and who plays which role."""

from typing import NamedTuple

from understudy.core.loading.served_name import served_name


class ServedVersion(NamedTuple):
    """A version of an example model, which every server has."""

    model_name: str
    version: int


class Standing(NamedTuple):
    """How a model stands when the demo starts."""

    champion: str
    is_new: bool
    """Whether its first policy is unchanged; every rollout changes it."""
    candidates: frozenset[str]
    """Versions that can be rolled out: not the champion, not the shadow, not retired."""


class ScenarioStep(NamedTuple):
    """A rollout of the scenario: its version, and what is special about that version."""

    version: str
    what: str


class FirstPolicy(NamedTuple):
    """The policy that a model gets in a new database; later starts leave it as operators changed it."""

    model_name: str
    champion: int
    challenger: int | None = None
    challenger_weight: int = 0
    shadow: int | None = None


CASES = 10
"""Validation cases of each version."""
SERVERS = ("models-a", "models-b")
"""Model servers, each with an agent: two replicas of every version."""
GROUP = "demo"
# 40 ms is some forty times the champion's own; 8 % is far over any error budget. It answers its cases as it should:
# each by itself, and all of them in one call more.
FAULT = f"{served_name('visits', '3')},after_calls={CASES + 1},latency_ms=40,jitter_ms=15,error_percent=8"
"""Of each server, as ``understudy modelserver --fault`` takes it."""
VERSIONS = (
    ServedVersion("visits", 1),
    ServedVersion("visits", 2),
    ServedVersion("visits", 3),
    ServedVersion("visits", 4),
    ServedVersion("digits", 1),
)
POLICIES = (
    FirstPolicy("visits", champion=1, shadow=4),
    FirstPolicy("digits", champion=1),
)
DATABASE_SECONDS = 10.0
"""Longest time of one statement of the demo's own."""
SCENARIO_MODEL = "visits"
SCENARIO = (
    ScenarioStep("3", "bad on purpose: 40 ms slower, and 8 % of its calls fail"),
    ScenarioStep("2", "a better model than the champion, by its hold-out figures"),
)
UNTOUCHED = Standing("1", is_new=True, candidates=frozenset({"2", "3"}))
"""Of a new database."""
SUMMARY = "visits 1 champion, 2 good, 3 bad, 4 shadow; digits 1"
