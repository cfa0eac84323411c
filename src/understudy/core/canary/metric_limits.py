"""The metrics of an operator's own that a plan names: a query for each version, and how much worse it may be."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from understudy.core.canary.limit_reader import LimitReader, shares_of
from understudy.errors import Violation

MAX_METRICS = 4
MAX_PROMQL = 4_000
"""Characters of a query."""
MAX_METRIC_NAME = 80
MAX_LIMIT_RATIO = 0.99
DEFAULT_LIMIT_RATIO = 0.05
PLACEHOLDERS = ("model", "version", "role")
_PLACEHOLDER = re.compile(r"\$([A-Za-z_]+)|\$\{([^}]*)\}")
_STRING = re.compile(r"""(?P<regex>[=!]~\s*)?(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|#[^\n]*""", re.DOTALL)
"""A string of PromQL, with the operator before it that has it read as a regular expression; or a comment."""
_OF_A_SIDE = {"version", "role"}
_SOURCE = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_EXAMPLE = (
    '{"name": "basket", "source": "shop", "promql": "sum(rate(euros_total{version=\\"$version\\"}[5m])) / ...", '
    '"limit_ratio": 0.1}'
)


class MetricLimit(NamedTuple):
    """One metric, and what is tolerated of it."""

    name: str
    promql: str
    """Gives one series for each version; ``$model``, ``$version`` and ``$role`` stand for what they say."""
    source: str
    """The name that the monitors' setting ``UNDERSTUDY_METRIC_SOURCES`` has for the Prometheus API that is asked."""
    limit_ratio: float = DEFAULT_LIMIT_RATIO
    """How much worse it may be, as a share of the champion's."""
    lower_is_better: bool = False
    alpha_share: float | None = None
    """Of what all metrics may spend; ``None``: what the others leave, in equal parts."""

    def to_json(self) -> dict[str, Any]:
        """Return it as a plan has it."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def metric_shares(limits: Sequence[MetricLimit]) -> tuple[float, ...]:
    """Return which share of the metrics' alpha each has: together 1 at most."""
    return shares_of([limit.alpha_share for limit in limits])


def query_of(limit: MetricLimit, *, model: str, version: str, role: str) -> str:
    """Return the query about one version.

    What is put in cannot end the string that it stands in, of either kind of quotes: all but plain characters become
    escapes of PromQL's strings. In a regular expression it stands for itself alone: ``1.0`` does not match ``110``.
    """
    values = {"model": model, "version": version, "role": role}

    def in_string(string: re.Match[str]) -> str:
        escaped = _escaped if string["regex"] is None else _escaped_in_regex

        def put(found: re.Match[str]) -> str:
            return "".join(map(escaped, values[found[1] or found[2]]))

        return string[0] if string["text"] is None else _PLACEHOLDER.sub(put, string[0])

    return _STRING.sub(in_string, limit.promql)


def read_metrics(value: Any) -> tuple[tuple[MetricLimit, ...], list[Violation]]:
    """Return the metrics of a JSON list, and everything that is wrong with it, with JSON pointers into the list."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not 1 <= len(value) <= MAX_METRICS:
        return (), [Violation("", f"expected a list of 1 to {MAX_METRICS} metrics")]
    reader = _Reader("metric")
    limits = tuple(reader.metric(f"/{number}", one) for number, one in enumerate(value))
    if not reader.violations:
        reader.names_apart([limit.name for limit in limits])
        reader.shares_together([limit.alpha_share for limit in limits])
    return limits, reader.violations


class _Reader(LimitReader):
    """Reads metrics as far as they can be read, and gathers what is wrong with them."""

    def metric(self, pointer: str, value: Any) -> MetricLimit:
        if not isinstance(value, Mapping):
            self.refuse(pointer, f"expected an object such as {_EXAMPLE}")
            return MetricLimit("", "", "")
        self.known(pointer, value, MetricLimit._fields)
        name, source = value.get("name"), value.get("source")
        if not (isinstance(name, str) and 0 < len(name) <= MAX_METRIC_NAME):
            self.refuse(f"{pointer}/name", f"expected a name of 1 to {MAX_METRIC_NAME} characters")
            name = ""
        if not (isinstance(source, str) and _SOURCE.fullmatch(source)):
            self.refuse(f"{pointer}/source", "expected the name that UNDERSTUDY_METRIC_SOURCES has for a Prometheus")
            source = ""
        return MetricLimit(
            name,
            self._promql(f"{pointer}/promql", value.get("promql")),
            source,
            self._limit_ratio(f"{pointer}/limit_ratio", value.get("limit_ratio", DEFAULT_LIMIT_RATIO)),
            self.yes_or_no(pointer, value, "lower_is_better"),
            self.share(pointer, value.get("alpha_share")),
        )

    def _limit_ratio(self, pointer: str, value: Any) -> float:
        is_times = isinstance(value, int | float) and not isinstance(value, bool) and value >= 1
        if is_times:
            self.refuse(pointer, "expected a share of the champion's value: 0.2 tolerates 1.2 or 0.8 times as much")
            return DEFAULT_LIMIT_RATIO
        return self.number(pointer, value, 0.0, MAX_LIMIT_RATIO)

    def _promql(self, pointer: str, value: Any) -> str:
        if not (isinstance(value, str) and 0 < len(value) <= MAX_PROMQL) or "\0" in value:
            self.refuse(pointer, f"expected a query of 1 to {MAX_PROMQL:,} characters")
            return ""
        if "`" in value:
            self.refuse(pointer, "expected quotes in the place of backticks, in which nothing can be put safely")
            return value
        used = _placeholders(value)
        unknown = sorted(used - set(PLACEHOLDERS))
        if unknown:
            known = ", ".join(f"${name}" for name in PLACEHOLDERS)
            self.refuse(pointer, f"${unknown[0][:40]} is not known; there are {known}")
        if not used & _OF_A_SIDE:
            self.refuse(pointer, "expected $version or $role in it: without one it asks the same of both versions")
        elif not unknown and _placeholders(_STRING.sub(_without_text, value)):
            self.refuse(pointer, 'expected quotes around what stands for a name, as in {version="$version"}')
        return value


def _placeholders(text: str) -> set[str]:
    return {first or second for first, second in _PLACEHOLDER.findall(text)}


def _without_text(string: re.Match[str]) -> str:
    """Return what is left of a query's string, nothing; a comment stays, in which a name would say nothing."""
    return string[0] if string["text"] is None else ""


def _escaped(character: str) -> str:
    """Return a character as PromQL reads it in a string of either kind of quotes."""
    if character.isascii() and (character.isalnum() or character in " _.:/-+@"):
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def _escaped_in_regex(character: str) -> str:
    """Return a character as PromQL reads it in a string that is a regular expression, in which it is itself."""
    if character.isascii() and not character.isalnum():
        return f"\\\\x{ord(character):02x}"
    return _escaped(character)
