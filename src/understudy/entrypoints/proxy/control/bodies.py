"""The control plane's bodies as pydantic models, which name at once all that is wrong and have a schema each."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from understudy.core.requests.strict_json import parse
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import CommandKind
from understudy.core.routing.arms import BucketRange
from understudy.core.routing.policy_file import MAX_CATEGORIES, MAX_LABEL, MAX_SALT
from understudy.core.schema.features import MAX_NAME_SHOWN
from understudy.errors import MAX_VIOLATIONS, BodyInvalid, Violation
from understudy.ports.registry.registry import FileWords
from understudy.rollout.start.start import plan_problems

MAX_BODY_BYTES = 32_768
MAX_REASON = 1_000
MAX_PATH = 4_096
MAX_FREEZE, MAX_FREEZES = 200, 50
MAX_ARMS = 100
"""As many as there are buckets."""
MAX_ASKED = 1_000
"""Names of a batch of outcomes, of which each event may have another."""
_MAX_DIGITS = 18
"""As many digits as a generation or an id may have and still fit 64 bits."""

Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]
Salt = Annotated[str, Field(min_length=1, max_length=MAX_SALT)]
Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON)]
Percent = Annotated[int, Field(ge=0, le=100)]

_ABSENT: Any = None
"""The default of a field that may be absent, but not null."""


def documented(example: Mapping[str, Any], **keywords: Any) -> Callable[[dict[str, Any]], None]:
    """Return what completes a body's schema; the fields' titles and null defaults that pydantic adds say nothing."""

    def complete(schema: dict[str, Any]) -> None:
        schema.update(examples=[example], **keywords)
        for field in schema["properties"].values():
            field.pop("title", None), field.pop("default", None)

    return complete


class Body(BaseModel):
    """What every body keeps to: no unknown fields, no conversion of types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    absent: ClassVar[bytes] = b""
    """What an empty body stands for; by default it is no JSON."""

    @classmethod
    def read(cls, body: bytes, *, dry_run: bool = False) -> Self:
        """Return the body that a caller sent.

        Raises:
            MalformedBody: It is no JSON.
            BodyInvalid: With everything that is wrong with it.
        """
        try:
            return cls.model_validate(parse(body or cls.absent), context={"dry_run": dry_run})
        except ValidationError as problem:
            found = problem.errors(include_url=False, include_context=False, include_input=False)
        # A misspelt field explains one that is missing, so that it comes first.
        found.sort(key=lambda error: error["type"] != "extra_forbidden")
        raise BodyInvalid.naming(
            *(cls._violation(error["type"], error["loc"], error["msg"]) for error in found[:MAX_VIOLATIONS])
        )

    @classmethod
    def _violation(cls, kind: str, place: tuple[int | str, ...], message: str) -> Violation:
        pointer = "".join(f"/{_escaped(str(part)[:MAX_NAME_SHOWN])}" for part in place)
        details = {
            "extra_forbidden": f"is not a field of this body; there are {', '.join(cls.model_fields)}",
            "model_type": "expected an object",
            "missing": "missing",
        }
        return Violation(pointer, details.get(kind) or message.replace("Input should be", "expected"))


class RolloutStart(Body):
    """A rollout to be started."""

    model_config = ConfigDict(
        json_schema_extra=documented({"version": "7", "plan": "2,10,50,100", "reason": "weekly retrain"})
    )

    version: Label = Field(description="The challenger.")
    plan: str | dict[str, Any] | None = Field(
        None, description=f"{', '.join(NAMED_PLANS)}, weights, an object; by default what the risk asks for."
    )
    salt: Salt | None = Field(
        None, description="By default the plan's own, else a fresh one; null hashes the model's name."
    )
    expect_different_scores: bool = Field(
        default=False,
        description="Scores unlike the champion's at the warm-up do not hold it; the plan may say so too.",
    )
    freezes: list[Annotated[str, Field(min_length=1, max_length=MAX_FREEZE)]] = Field(
        default=[], max_length=MAX_FREEZES, description="No step then, beside the plan's own: 'Fri 18:00 - Mon 08:00'."
    )
    generation: int | None = Field(
        None, ge=0, description="Start nothing unless the policy is at this generation, as a dry run names it."
    )
    reason: Reason | None = Field(
        None, validate_default=True, description="Required unless dry_run; kept in the audit."
    )

    @field_validator("plan", mode="before")
    @classmethod
    def _check_plan(cls, source: Any) -> Any:
        if source is None:
            return None
        if not isinstance(source, str | dict):
            raise problem_of_field("expected a plan's name, weights such as 2,10,50,100, an object, or null")
        is_object = isinstance(source, dict)
        problems = [
            InitErrorDetails(type=problem_of_field(detail), loc=_parts(pointer) if is_object else (), input=None)
            for pointer, detail in plan_problems(source)
        ]
        if problems:
            raise ValidationError.from_exception_data("plan", problems)
        return source

    @field_validator("reason")
    @classmethod
    def _check_reason(cls, reason: str | None, asked: ValidationInfo) -> str | None:
        if reason is None and not (asked.context or {}).get("dry_run"):
            raise problem_of_field("missing; only a dry run needs no reason")
        return reason

    def hashed_salt(self, fresh_salt: Callable[[], str]) -> str | None:
        """Return the body's salt, else the plan's own, else a fresh one; ``None`` for the model's name."""
        if "salt" in self.model_fields_set:
            return self.salt
        return (self.plan.get("salt") if isinstance(self.plan, dict) else None) or fresh_salt()


class NamedMetric(Body):
    """The name of outcomes of a model."""

    model: Label
    name: Label


class OutcomeQuestion(Body):
    """Names that a file of outcomes has: which of them are unknown so far."""

    models: list[Label] = Field(default=[], max_length=MAX_ASKED, description="Which are no registered models.")
    metrics: list[NamedMetric] = Field(default=[], max_length=MAX_ASKED, description="Which had no event yet.")


class Remark(Body):
    """The optional body of a command or a rollback."""

    model_config = ConfigDict(json_schema_extra=documented({"reason": "the shop is slow"}))
    absent = b"{}"

    reason: Reason | None = Field(None, description="Kept in the audit.")


class RollbackAsked(Remark):
    """The optional body of a rollback."""

    dry_run: bool = Field(default=False, description="Say what it would do; change nothing.")


class Resumption(Remark):
    """The optional body of a resume."""

    model_config = ConfigDict(
        json_schema_extra=documented({"reason": "the new model ranks by profit", "expect_different_scores": True})
    )

    expect_different_scores: bool = Field(
        default=False, description="Scores unlike the champion's at the warm-up let the rollout go on."
    )


class Approval(Body):
    """The body of an approval."""

    model_config = ConfigDict(json_schema_extra=documented({"reason": "looked at the charts with risk"}))

    reason: Reason = Field(description="Kept in the rollout's events.")
    ahead: bool = Field(default=False, description="Whether it is for a step that the rollout has not come to yet.")
    to_percent: int | None = Field(
        default=None, ge=1, le=100, description="The share of the step that is meant; no other step is approved."
    )


def command_body(kind: CommandKind) -> type[Remark | Approval]:
    """Return what a command to a rollout takes."""
    if kind is CommandKind.APPROVE:
        return Approval
    return Resumption if kind is CommandKind.RESUME else Remark


class ArmRange(Body):
    """The buckets of a further arm, as a policy shows them."""

    version: Label
    first: Annotated[int, Field(ge=0, le=99)]
    last: Annotated[int, Field(ge=0, le=99)]


class AppliedFrom(Body):
    """The file that a change comes from, and the fields that it says, as ``understudy apply`` keeps them."""

    path: Annotated[str, Field(min_length=1, max_length=MAX_PATH)]
    fields: dict[str, Any]


class PolicyChange(Body):
    """The fields of a policy that a caller may change; a rollout changes its own. Absent ones stay as they are."""

    model_config = ConfigDict(
        json_schema_extra=documented(
            {"challenger": "7", "challenger_weight": 10, "reason": "a first look"}, minProperties=1
        )
    )

    champion: Label = _ABSENT
    challenger: Label | None = None
    challenger_weight: Percent = _ABSENT
    shadow: Label | None = None
    shadow_percent: Percent = _ABSENT
    fallback: bool = _ABSENT
    salt: Salt | None = None
    category_roles: Annotated[dict[str, Literal["champion", "challenger"]], Field(max_length=MAX_CATEGORIES)] = _ABSENT
    input_sample_percent: Percent = _ABSENT
    guard: Literal["rollback", "alert", "off"] = _ABSENT
    on_drift: Literal["alert", "rollback"] = _ABSENT
    category_holdout_percent: Annotated[int, Field(strict=True, ge=0, le=50)] = _ABSENT
    arms: list[ArmRange] = Field(
        _ABSENT, max_length=MAX_ARMS, description="The buckets of all further arms; an empty list ends them."
    )
    file: AppliedFrom = Field(_ABSENT, description="The file that the change comes from; kept with the policy.")
    reason: Reason | None = Field(None, description="Kept in the audit.")

    @property
    def changes(self) -> Mapping[str, Any]:
        """The fields that the body names, but for the reason and the file."""
        named = self.model_dump(exclude_unset=True, exclude={"reason", "file"})
        if "arms" in named:
            named["arms"] = tuple(BucketRange(arm.version, arm.first, arm.last) for arm in self.arms)
        return named

    @property
    def words(self) -> FileWords | None:
        """What the file says that the change comes from; ``None``: it comes from none."""
        return FileWords(self.file.path, self.file.fields) if "file" in self.model_fields_set else None

    @model_validator(mode="after")
    def _check_changes(self) -> Self:
        if not self.changes and "file" not in self.model_fields_set:
            fields = [name for name in type(self).model_fields if name not in ("reason", "file")]
            raise problem_of_field(f"expected at least one of {', '.join(fields)}")
        return self


def read_whole_number(text: str) -> int | None:
    """Return the id or generation that a caller of the control plane writes in digits; ``None`` when it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def refused(*details: str) -> BodyInvalid:
    """Return the refusal of a whole body, for each of these reasons."""
    return BodyInvalid.naming(*(Violation("", detail) for detail in details))


def problem_of_field(detail: str) -> PydanticCustomError:
    """Return the refusal of a field, for a validator."""
    return PydanticCustomError("refused", "{detail}", {"detail": detail})


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _parts(pointer: str) -> tuple[str, ...]:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
