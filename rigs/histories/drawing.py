"""Operations drawn from a seed, before anything runs: the same seed asks for the same again."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from rigs.histories.record import COMMANDS, Kind, Operation, Way

CLIENTS = 4
EACH = 78
"""Operations of each client: 312 together."""
PAUSE_SECONDS = 0.18
"""Between two operations of a client, on average."""
SPELL = 20
"""Operations of each client in a spell. In one, policies are changed by hand; in the next, they are left to rollouts.

Changes by hand all the time would stop every rollout at its first step.
"""
VERSIONS = ("1", "2", "3", "4")
ENTITIES = tuple(f"person-{number}" for number in range(24))
BATCH = 8
TARGETS = ("proxy-a", "proxy-b", "monitor-a", "monitor-b")

_BY_HAND: Mapping[Kind, int] = {
    Kind.PREDICT: 26,
    Kind.READ_POLICY: 9,
    Kind.READ_AUDIT: 4,
    Kind.SET: 24,
    Kind.ADD: 7,
    Kind.ABANDON: 2,
    Kind.ROLL_BACK: 9,
    Kind.RETIRE: 2,
    Kind.RESTORE: 6,
    Kind.START: 2,
    Kind.ABORT: 3,
    Kind.FAULT: 4,
}
_BY_ROLLOUT: Mapping[Kind, int] = {
    Kind.PREDICT: 34,
    Kind.READ_POLICY: 7,
    Kind.READ_AUDIT: 2,
    Kind.READ_ROLLOUT: 10,
    Kind.ADD: 6,
    Kind.ROLL_BACK: 1,
    Kind.RESTORE: 5,
    Kind.START: 14,
    Kind.PAUSE: 3,
    Kind.RESUME: 8,
    Kind.PROMOTE: 6,
    Kind.ABORT: 1,
    Kind.FAULT: 4,
}
_WAYS: Mapping[Kind, Sequence[Way]] = {
    Kind.SET: (Way.SQL, Way.SQL, Way.SQL, Way.HTTP, Way.HTTP, Way.HTTP, Way.CLI),
    Kind.ADD: (Way.SQL,),
    Kind.ABANDON: (Way.SQL,),
    Kind.ROLL_BACK: (Way.SQL, Way.SQL, Way.HTTP, Way.HTTP, Way.CLI),
    Kind.READ_POLICY: (Way.SQL, Way.SQL, Way.HTTP, Way.HTTP, Way.HTTP, Way.CLI),
    Kind.READ_AUDIT: (Way.SQL, Way.HTTP, Way.CLI),
    Kind.READ_ROLLOUT: (Way.HTTP, Way.HTTP, Way.HTTP, Way.CLI),
    Kind.RETIRE: (Way.SQL, Way.CLI),
    Kind.RESTORE: (Way.SQL, Way.SQL, Way.CLI),
    Kind.PREDICT: (Way.HTTP,),
    Kind.FAULT: (Way.NONE,),
    **dict.fromkeys((Kind.START, *COMMANDS), (Way.HTTP, Way.HTTP, Way.HTTP, Way.CLI)),
}
"""By which ways; the command line takes most of the processor's time, and goes the rarest."""
_PLANS: Sequence[Mapping[str, Any]] = (
    {"strategy": "rolling", "steps": [10, 50, 100], "keep_warm_seconds": 1.0},
    {"strategy": "rolling", "steps": [20, 100], "keep_warm_seconds": 3.0},
    {"strategy": "rolling", "steps": [5, 25, 60, 100], "keep_warm_seconds": 0.5},
    {"strategy": "blue_green", "steps": [100], "keep_warm_seconds": 2.0},
    # Nothing moves it but operators: a canary's first verdict takes a window of fifteen seconds.
    {"strategy": "canary", "steps": [30, 60, 100], "keep_warm_seconds": 1.0},
)
DWELL_SECONDS = 0.5
WHOLE = 100
# Shares of what is drawn.
_HANGS_UP, _CONDITIONAL, _WITHOUT_ARMS, _FALLBACK = 0.12, 0.4, 0.4, 0.6


def draw(seed: int, clients: int = CLIENTS, each: int = EACH) -> list[list[Operation]]:
    """Return the operations of each client."""
    return [_of_client(Random(f"{seed}/{client}"), client, each) for client in range(clients)]


def _of_client(random: Random, client: int, each: int) -> list[Operation]:
    operations = []
    for number in range(each):
        weights = _BY_HAND if number // SPELL % 2 == 0 else _BY_ROLLOUT
        kind = random.choices(list(weights), list(weights.values()))[0]
        way = random.choice(_WAYS[kind])
        asked = _ASKED[kind](random, way) if kind in _ASKED else {}
        operations.append(Operation(client, number, kind, way, asked, min(random.expovariate(1 / PAUSE_SECONDS), 1.0)))
    return operations


def _set(random: Random, way: Way) -> dict[str, Any]:
    drawn = random.choice(_CHANGES)(random)
    if way is not Way.SQL and ("arms" in drawn or drawn.get("challenger_weight", 0) > WHOLE):
        # Ranges have no field over HTTP and are computed by the command line; nonsense is refused before it is sent.
        drawn = {"shadow_percent": random.randint(0, WHOLE)}
    asked: dict[str, Any] = {"changes": drawn}
    if way is Way.HTTP or random.random() < _CONDITIONAL:
        asked["expected"] = "seen"
    elif way is Way.SQL and random.random() < _HANGS_UP:
        asked["hangs_up_after"] = random.uniform(0, 0.006)
    return asked


def _share(random: Random) -> dict[str, Any]:
    return {"challenger": random.choice(VERSIONS), "challenger_weight": random.choice((1, 5, 10, 30, 50, 90, 100))}


def _champion(random: Random) -> dict[str, Any]:
    return {"champion": random.choice(VERSIONS), "challenger": None, "challenger_weight": 0}


def _arms(random: Random) -> dict[str, Any]:
    if random.random() < _WITHOUT_ARMS:
        return {"arms": []}
    first, version = random.randint(60, 95), random.choice(VERSIONS)
    return {"arms": [[version, first, random.randint(first, 99)]]}


_CHANGES: Sequence[Callable[[Random], dict[str, Any]]] = (
    _share,
    _share,
    _champion,
    _arms,
    lambda random: {"challenger_weight": random.choice((0, 0, 2, 20, 60, 101))},
    lambda random: {"champion": random.choice(VERSIONS)},
    lambda random: {"shadow": random.choice((None, *VERSIONS))},
    lambda random: {"fallback": random.random() < _FALLBACK},
    lambda random: {"salt": random.choice((None, "spring", "autumn"))},
)


def _version(random: Random, _: Way) -> dict[str, Any]:
    return {"version": random.choice(VERSIONS)}


def _start(random: Random, _: Way) -> dict[str, Any]:
    plan = dict(random.choice(_PLANS))
    plan["steps"] = [
        {"weight_percent": weight, "dwell_seconds": 0 if weight == WHOLE else DWELL_SECONDS, "min_requests": 0}
        for weight in plan["steps"]
    ]
    return {"version": random.choice(VERSIONS), "plan": plan}


def _predict(random: Random, _: Way) -> dict[str, Any]:
    return {"entities": random.sample(ENTITIES, BATCH)}


def _fault(random: Random, _: Way) -> dict[str, Any]:
    fault = random.choices(list(_FAULTS), [weight for weight, *_rest in _FAULTS.values()])[0]
    targets, seconds = _FAULTS[fault][1:]
    return {"fault": fault, "target": random.choice(targets), "seconds": round(random.uniform(*seconds), 2)}


_PROCESSES, _MONITORS = TARGETS, TARGETS[2:]
_FAULTS: Mapping[str, tuple[int, Sequence[str], tuple[float, float]]] = {
    "kill": (5, _PROCESSES, (0.0, 1.5)),
    "stop": (3, _PROCESSES, (0.3, 3.0)),
    "stop long": (2, _MONITORS, (6.5, 8.0)),
    "refuse": (3, (*_PROCESSES, "operators"), (0.3, 2.5)),
    "blackhole": (4, (*_PROCESSES, "operators"), (0.3, 4.0)),
    "slow": (2, (*_PROCESSES, "operators"), (0.5, 3.0)),
    "end sessions": (3, ("database",), (0.0, 0.0)),
    "crash": (1, ("postgres",), (0.0, 0.5)),
    "fail": (3, ("challenger",), (1.0, 4.0)),
}
"""How often, at what, and for how many seconds. A monitor that stops for longer than its lease finds another leader."""

_ASKED: Mapping[Kind, Callable[[Random, Way], dict[str, Any]]] = {
    Kind.SET: _set,
    Kind.ABANDON: lambda random, _: {"changes": _share(random)},
    Kind.ADD: lambda random, _: {"add": random.randint(1, 60)},
    Kind.RETIRE: _version,
    Kind.RESTORE: _version,
    Kind.START: _start,
    Kind.PREDICT: _predict,
    Kind.FAULT: _fault,
}
