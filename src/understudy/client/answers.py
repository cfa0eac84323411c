"""What the proxy answers, as values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

from understudy.client.problems import ANOTHER_SERVER, ProxyAway, error_of
from understudy.errors import InternalFault, UnderstudyError

Label = str | int | float | bool
P = ParamSpec("P")
T = TypeVar("T")


def _of_a_proxy(read: Callable[P, T]) -> Callable[P, T]:
    """Let a function that reads answers raise ``ProxyAway`` for JSON that no proxy writes."""

    @wraps(read)
    def checked(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return read(*arguments, **options)
        except (AttributeError, LookupError, TypeError) as problem:
            what = f"{type(problem).__name__}: {problem}"
            detail = f"the server that answers is no proxy of this version: its answer has another form ({what:.200})"
            raise ProxyAway(detail, is_passing=False, hint=ANOTHER_SERVER) from None

    return checked


class Fallback(NamedTuple):
    """The champion answered in the place of a version that failed."""

    from_version: str
    code: str
    """Of the error that the version failed with."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """By whom a call was answered."""

    model: str
    version: str
    role: str
    """``champion``, ``challenger``, ``forced``."""
    prediction_id: str
    """The row's id in ``PredictionLog``, and what an outcome may name."""
    generation: int
    """Of the policy that decided."""
    fallback: Fallback | None
    defaulted: tuple[str, ...]
    """Stored features that took their default."""
    document: Mapping[str, Any] = field(repr=False)
    """The whole answer."""


@dataclass(frozen=True, slots=True)
class Prediction(_Answered):
    """One prediction: ``score``, ``label`` and ``scores``, ``label``, or ``labels``, as the version's schema says."""

    entity_id: str | None = None
    """In a batch."""
    score: float | None = None
    label: Label | None = None
    scores: tuple[float, ...] | None = None
    labels: tuple[Label, ...] | None = None

    @classmethod
    @_of_a_proxy
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return the prediction of an answer, or of a member of a batch."""
        said = document["prediction"]
        return cls(
            **_answered(document),
            entity_id=document.get("entity_id"),
            score=said.get("score"),
            label=said.get("label"),
            scores=_tuple_or_none(said.get("scores")),
            labels=_tuple_or_none(said.get("labels")),
        )


class Member(NamedTuple):
    """What became of one entity of a batch: a prediction, or an error."""

    prediction: Prediction | None
    error: UnderstudyError | None

    @classmethod
    @_of_a_proxy
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return a member of a batch."""
        problem = document.get("error")
        if problem is None:
            return cls(Prediction.read(document), None)
        return cls(None, error_of(problem) or InternalFault(str(problem.get("detail", ""))))


class BatchAnswer(NamedTuple):
    """The members of a batch, in the order of its entities."""

    members: tuple[Member, ...]

    def __repr__(self) -> str:
        return f"BatchAnswer({len(self.members):,} members, {self.failed:,} failed)"

    @property
    def failed(self) -> int:
        """How many have an error."""
        return sum(member.error is not None for member in self.members)

    def predictions(self) -> tuple[Prediction, ...]:
        """Return the prediction of each entity.

        Raises:
            UnderstudyError: The first member's that has one.
        """
        for member in self.members:
            if member.error is not None:
                raise member.error
        return tuple(member.prediction for member in self.members if member.prediction is not None)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a row for each entity, in their order, of which pandas and polars make a frame.

        What a member does not have is ``None``: a prediction has no ``error_code`` and no ``error``, and an error
        nothing else.
        """
        return [_row(member) for member in self.members]

    @classmethod
    @_of_a_proxy
    def read(cls, documents: Iterable[Mapping[str, Any]]) -> Self:
        """Return the members of the answers to a batch's calls."""
        return cls(tuple(Member.read(member) for document in documents for member in document["predictions"]))


_ROW = ("entity_id", "score", "label", "scores", "labels", "version", "role", "prediction_id")


def _row(member: Member) -> dict[str, Any]:
    row = {name: getattr(member.prediction, name, None) for name in _ROW}
    error = member.error
    return {**row, "error_code": None if error is None else error.code, "error": None if error is None else str(error)}


class BestTreatment(NamedTuple):
    """A treatment among the best."""

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Ranking(_Answered):
    """The scores of treatments in the order of the request, or the best of them, the greatest first."""

    treatments: int = 0
    """How many there were."""
    scores: tuple[float, ...] | None = None
    """Of all, without ``top_k``."""
    best: tuple[BestTreatment, ...] | None = None
    """With ``top_k``."""

    @classmethod
    @_of_a_proxy
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return the ranking of an answer."""
        said = document["prediction"]
        best = said.get("best")
        return cls(
            **_answered(document),
            treatments=said["treatments"],
            scores=_tuple_or_none(said.get("scores")),
            best=None if best is None else tuple(BestTreatment(one["id"], one["score"]) for one in best),
        )


class Receipt(NamedTuple):
    """Which version answers an entity, and why."""

    model: str
    entity_id: str
    version: str
    role: str
    reason: str
    bucket: int
    hashed: str
    """What was hashed, so that the bucket can be computed again."""
    challenger_weight: int
    joins_challenger_from_weight: int | None
    shadowed: bool
    generation: int

    @classmethod
    @_of_a_proxy
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return the receipt of an answer; what later releases add to it is left out."""
        named: dict[str, Any] = {name: document[name] for name in cls._fields}
        return cls(**named)


class StoredOutcomes(NamedTuple):
    """How many outcomes are stored."""

    new: int
    known: int
    """From before: an event counts once."""
    new_metrics: tuple[tuple[str, str], ...] = ()
    """Models and names of which the proxy says that there was no outcome before: one may be misspelt."""

    @classmethod
    @_of_a_proxy
    def read(cls, documents: Iterable[Mapping[str, Any]]) -> Self:
        """Return the sums of the answers to several calls."""
        read = list(documents)
        named = {(one["model"], one["name"]): None for document in read for one in document.get("new_metrics") or ()}
        return cls(sum(one["new"] for one in read), sum(one["known"] for one in read), tuple(named))


def _answered(document: Mapping[str, Any]) -> dict[str, Any]:
    fallback = document.get("fallback")
    return {
        "model": document["model"],
        "version": document["version"],
        "role": document["role"],
        "prediction_id": document["prediction_id"],
        "generation": document["generation"],
        "fallback": None if fallback is None else Fallback(fallback["from_version"], fallback["code"]),
        "defaulted": tuple(document.get("defaulted") or ()),
        "document": document,
    }


def _tuple_or_none(values: Any) -> tuple[Any, ...] | None:
    if values is not None and not isinstance(values, list):
        raise TypeError(f"expected a list, got {values!r:.40}")
    return None if values is None else tuple(values)
