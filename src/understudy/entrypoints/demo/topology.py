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


class FirstPolicy(NamedTuple):
    """The policy that a model gets in a new database; later starts leave what people made of it."""

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
    FirstPolicy("visits", champion=1, challenger=2, challenger_weight=10, shadow=4),
    FirstPolicy("digits", champion=1),
)
SUMMARY = "visits champion 1, challenger 2, bad 3, shadow 4; digits 1"


def endpoints_of(version: ServedVersion, targets: Mapping[str, str]) -> tuple[str, ...]:
    """Return where a version's replicas listen; ``targets`` maps each server's name to ``host:port``."""
    return tuple(targets[name] for name in version.servers)
