"""Calls about A/B tests: declare one, ask it as the command line does, say how large one has to be, list them.

Each also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.
"""

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field, field_validator

from understudy.bootstrap.session import Session
from understudy.entrypoints.documents.json_text import moment_of
from understudy.entrypoints.proxy.control.bodies import Body, Label, documented, problem_of_field, read_whole_number
from understudy.entrypoints.proxy.control.handler import (
    READ_SECONDS,
    REPORT_SECONDS,
    Bulkhead,
    ControlCall,
    answer,
    version_labeller,
)
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.errors import BodyInvalid, NotRegistered, QueryInvalid
from understudy.experiments.ab_plan import PlanQuestion
from understudy.experiments.declared_rows import MAX_LOOKS
from understudy.experiments.declared_tests import MetricChoice
from understudy.experiments.declaring import AbQuestion

if TYPE_CHECKING:
    from understudy.entrypoints.cli.shared.screens import Drawn

_MAX_SECONDS = 400 * 86_400.0
_MAX_GIVEN, _MAX_OPTION = 10, 30
WITHIN_SECONDS = 7 * 86_400.0


class ReportBody(Body):
    """A question about a test, as ``understudy ab report`` puts it."""

    model_config = ConfigDict(json_schema_extra=documented({"metric": "converted"}))

    metric: Annotated[str, Field(min_length=1, max_length=100)]
    effect: Annotated[str, Field(max_length=50)] | None = Field(None, description="To be seen: 5%, 0.05 or 0.5pt.")
    within_seconds: float = Field(WITHIN_SECONDS, gt=0, le=_MAX_SECONDS)
    per_call: bool = False
    lower_is_better: bool = False
    since: str | None = Field(None, max_length=100, description="Count from then on; ISO 8601 with a zone.")
    version: Label | None = Field(None, description="B; by default the challenger, or the only further arm.")
    quantiles: Literal["latency", "value"] | None = None
    given: list[Annotated[str, Field(max_length=_MAX_OPTION)]] = Field(
        default=[], max_length=_MAX_GIVEN, description="Options that an open test is held against: --effect, --since."
    )

    @field_validator("since")
    @classmethod
    def _check_moment(cls, text: str | None) -> str | None:
        if text is not None and _moment_of(text) is None:
            raise problem_of_field("expected a moment with a zone, such as 2026-11-20T13:00:00Z")
        return text


class Declaration(ReportBody):
    """A test to be declared, and asked at once; what it is to see does not change any more."""

    model_config = ConfigDict(json_schema_extra=documented({"metric": "converted", "looks": 5, "effect": "5%"}))

    looks: int = Field(ge=1, le=MAX_LOOKS, description="How often one may look and decide.")


class SizesAsked(NamedTuple):
    """How a test would be declared whose size is asked for."""

    metric: str | None
    effect: str | None
    within_seconds: float
    per_call: bool
    looks: int
    version: str | None


async def ask_report(call: ControlCall, body: bytes, columns: int | None, *, declares: bool) -> Reply:
    """Return a report on a model's test; with ``declares`` the test is declared first, if none is open.

    Raises:
        MalformedBody, BodyInvalid: The body.
        NotRegistered: There is no such model or version, or nothing to compare.
        DeclaredOtherwise, NotDeclarable: The open test is another, or none can be declared yet.
    """
    asked: ReportBody = Declaration.read(body) if declares else ReportBody.read(body)

    async def draw(parts: Session) -> "Drawn":
        from understudy.entrypoints.cli.ab.asked import wanted_of  # noqa: PLC0415 - rich, for few calls
        from understudy.entrypoints.cli.ab.asking import ReportAsked, drawn_report  # noqa: PLC0415 - as above
        from understudy.ports.experiments.experiment_log import Observed  # noqa: PLC0415 - with its only user

        choice = MetricChoice(asked.within_seconds, asked.per_call, not asked.lower_is_better)
        since = None if asked.since is None else _moment_of(asked.since)
        question = AbQuestion(
            call.model_name, asked.metric, time.time(), since, wanted_of(asked.effect), choice
        )._replace(quantiles=None if asked.quantiles is None else Observed(asked.quantiles))
        looks = asked.looks if isinstance(asked, Declaration) else None
        return await drawn_report(parts, ReportAsked(question, asked.version, looks, asked.given, call.key_id))

    return await _shown(call, draw, columns, Bulkhead.WRITE if declares else Bulkhead.READ, BodyInvalid)


async def plan_test(call: ControlCall, asked: SizesAsked, columns: int | None) -> Reply:
    """Return how many entities a test needs, and how long that takes at today's traffic.

    Raises:
        NotRegistered: There is no such model or version.
        QueryInvalid: No size can be computed of that.
    """

    async def draw(parts: Session) -> "Drawn":
        from understudy.entrypoints.cli.ab.asked import wanted_of  # noqa: PLC0415 - rich, for few calls
        from understudy.entrypoints.cli.ab.asking import drawn_sizes  # noqa: PLC0415 - as above

        choice = MetricChoice(asked.within_seconds, asked.per_call)
        wanted = wanted_of(asked.effect)
        question = PlanQuestion(call.model_name, asked.metric, wanted, choice, asked.looks, time.time())
        return await drawn_sizes(parts, question, asked.version)

    return await _shown(call, draw, columns, Bulkhead.READ, QueryInvalid)


async def list_tests(call: ControlCall, limit: int) -> Reply:
    """Return a model's newest declared tests.

    Raises:
        NotRegistered: There is no such model.
    """

    async def read(parts: Session) -> Reply:
        label = await version_labeller(parts, call.model_name)
        found = await parts.experiments.newest(call.model_name, limit)
        tests = [
            {
                "id": one.id,
                "metric": one.metric,
                "champion": label(one.champion_id),
                "challenger": label(one.challenger_id),
                "started_at": moment_of(one.started_at),
                "ended_at": moment_of(one.ended_at),
                "declared_by": one.created_by,
                "plan": one.plan,
            }
            for one in found
        ]
        return answer({"experiments": tests})

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def show_tests(
    call: ControlCall, limit: int, permitted: frozenset[str] | None, columns: int | None, *, utc: bool
) -> Reply:
    """Return the newest declared tests of a model, or of all that the key may read, as ``understudy ab list`` does.

    Raises:
        NotRegistered: There is no such model.
    """

    async def draw(parts: Session) -> "Drawn":
        from understudy.entrypoints.cli.ab.asking import drawn_tests  # noqa: PLC0415 - rich, for few calls

        models = [call.model_name] if call.model_name else permitted
        if models is not None and not call.model_name:  # a key may name models that there are not yet
            models = [one.model_name for one in await parts.registry.list_models() if one.model_name in models]
        return await drawn_tests(parts, models, limit, utc=utc)

    return await _shown(call, draw, columns, Bulkhead.READ, QueryInvalid)


async def stop_test(call: ControlCall, test_id: str, columns: int | None) -> Reply:
    """End a declared test before it decides, as ``understudy ab stop`` does.

    Raises:
        NotRegistered: The model has no such test.
        PolicyRefused: It is over, or was changed at this moment.
    """
    number = read_whole_number(test_id)
    if number is None:
        raise NotRegistered("there is no such test", hint="GET /v1/models/{model}/experiments lists them.")

    async def draw(parts: Session) -> "Drawn":
        from understudy.entrypoints.cli.ab.asking import drawn_stop  # noqa: PLC0415 - rich, for few calls

        return await drawn_stop(parts, call.model_name, number, call.actor(None))

    return await _shown(call, draw, columns, Bulkhead.WRITE, QueryInvalid)


async def _shown(
    call: ControlCall,
    draw: "Callable[[Session], Awaitable[Drawn]]",
    columns: int | None,
    bulkhead: Bulkhead,
    unusable: type[QueryInvalid | BodyInvalid],
) -> Reply:
    """Return a screen's document; what the command line refuses in words of its own is refused with them."""

    async def look(parts: Session) -> Reply:
        # Imported here, in a thread of the control plane: it takes 0.1 s once, which no prediction waits for.
        from understudy.entrypoints.cli.shared.errors import CommandRefused  # noqa: PLC0415 - as above
        from understudy.entrypoints.cli.shared.screens import drawn_document  # noqa: PLC0415 - as above

        try:
            if columns is None:
                return answer((await draw(parts)).document)
            return answer(await drawn_document(lambda: draw(parts), columns))
        except CommandRefused as refused:
            # All of these end the command line with 2, as what is wrong with a request does.
            raise unusable(refused.detail, hint=refused.next_step) from None

    return await call.run(bulkhead, look, REPORT_SECONDS)


def _moment_of(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.timestamp()
