"""What the demo consists of: which model servers, serving what, and who plays which role."""

from collections.abc import Mapping
from typing import NamedTuple


class ModelServer(NamedTuple):
    """A model server process and what it is told to serve, as ``understudy modelserver --serve`` takes it."""

    name: str
    serve: tuple[str, ...]


class ServedVersion(NamedTuple):
    """A version of an example model, and the servers that are its replicas."""

    model_name: str
    version: int
    servers: tuple[str, ...]


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


SERVERS = (
    ModelServer("champion-a", ("visits:1",)),
    ModelServer("champion-b", ("visits:1",)),
    ModelServer("challenger", ("visits:2",)),
    # 40 ms is some forty times the champion's own; 8 % is far over any error budget.
    ModelServer("bad-challenger", ("visits:3,latency_ms=40,jitter_ms=15,error_percent=8",)),
    ModelServer("shadow", ("visits:4",)),
    ModelServer("digits", ("digits:1",)),
)
VERSIONS = (
    ServedVersion("visits", 1, ("champion-a", "champion-b")),
    ServedVersion("visits", 2, ("challenger",)),
    ServedVersion("visits", 3, ("bad-challenger",)),
    ServedVersion("visits", 4, ("shadow",)),
    ServedVersion("digits", 1, ("digits",)),
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


def endpoints_of(version: ServedVersion, targets: Mapping[str, str]) -> tuple[str, ...]:
    """Return where a version's replicas listen; ``targets`` maps each server's name to ``host:port``."""
    return tuple(targets[name] for name in version.servers)
