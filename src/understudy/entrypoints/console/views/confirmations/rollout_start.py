"""The pages that start a rollout: what is asked for, and its plan at today's traffic before it begins."""

from collections.abc import Mapping
from typing import NamedTuple

from understudy.core.rollout.plan import NAMED_PLANS
from understudy.entrypoints.cli.shared.policy_changes.rollout_plan import (
    PLAN_COLUMNS,
    REFUSED_WORDS,
    first_share_words,
    plan_words,
    start_command,
)
from understudy.entrypoints.console.views.links import rollout_path, start_path
from understudy.entrypoints.console.views.policy import Field, PolicySeen, refusal_words, version_options
from understudy.errors import UnderstudyError
from understudy.rollout.start.start import Prepared

FIELDS = ("version", "plan", "freeze", "expects")
_WITH_PLANS, _WITH_FREEZES = ("the plan ", "/steps", "canary_"), ("freeze",)


class AskedStart(NamedTuple):
    """A rollout that is asked for."""

    version: str
    plan: str | None
    """``None``: the plan that the risk asks for."""
    freezes: tuple[str, ...]
    expects_scores: bool


class StartForm(NamedTuple):
    """What is asked before the plan is shown."""

    model: str
    sentence: str
    version: Field
    plan: Field
    freeze: Field
    expects: bool
    plans: tuple[str, ...]
    problem: str
    is_possible: bool
    open_rollout: str
    """Address of the one that is in the way; empty: none is."""


class StartPage(NamedTuple):
    """A rollout that is prepared."""

    model: str
    title: str
    because: str
    warnings: tuple[str, ...]
    expected: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    moves: str
    refused: str
    """Why it cannot begin, whatever is confirmed; else empty."""
    fields: tuple[tuple[str, str], ...]
    command: str
    back: str


def asked_start(values: Mapping[str, str]) -> AskedStart:
    """Return what a form asks for; an empty plan is the one that the risk asks for."""
    text = {name: values.get(name, "").strip() for name in FIELDS}
    freezes = (text["freeze"],) if text["freeze"] else ()
    return AskedStart(text["version"], text["plan"] or None, freezes, bool(text["expects"]))


def start_form(seen: PolicySeen, values: Mapping[str, str], refused: UnderstudyError | None = None) -> StartForm:
    """Return the form, with what was asked for and refused."""
    policy = seen.policy
    said = "" if refused is None else refusal_words(refused)
    at = "" if refused is None else _field_of(refused.detail)
    asked = asked_start(values)
    free = [one for one in seen.versions if policy is None or one.version not in (policy.champion, policy.shadow)]
    options = (("", "choose one"), *version_options(free, asked.version or None))
    sentence = f"{policy.champion} is the champion. A rollout takes another version to its place." if policy else ""
    if seen.open_rollout is not None:
        sentence = f"Rollout {seen.open_rollout} is open, and one at a time is enough: end it before another begins."
    return StartForm(
        seen.model,
        sentence or f"{seen.model} is not served: it has no champion to compare with.",
        Field("version", "Version", asked.version, "", options, problem=said if at == "version" else ""),
        Field(
            "plan", "Plan", asked.plan or "",
            "a name, or shares such as 2,10,50,100; empty: the one that the risk asks for",
            problem=said if at == "plan" else "",
        ),
        Field(
            "freeze", "Freeze window", "".join(asked.freezes),
            "no step then, such as Fri 18:00 - Mon 08:00 Europe/Berlin; empty: none",
            problem=said if at == "freeze" else "",
        ),
        asked.expects_scores,
        tuple(NAMED_PLANS),
        "" if at else said,
        policy is not None and seen.open_rollout is None,
        "" if seen.open_rollout is None else rollout_path(seen.model, seen.open_rollout),
    )  # fmt: skip


def start_page(asked: AskedStart, prepared: Prepared) -> StartPage:
    """Return what is asked before a rollout begins: what ``understudy plan`` says of it."""
    said, model = plan_words(prepared), prepared.champion.model_name
    sent = {
        "version": asked.version,
        "plan": asked.plan or "",
        "freeze": "".join(asked.freezes),
        "expects": "yes" if asked.expects_scores else "",
        "generation": str(prepared.generation),
    }
    return StartPage(
        model,
        ", ".join(part.strip() for part in said.title.split("   ")),
        said.because,
        tuple(line.removeprefix("! ") for line in said.warnings),
        said.expected,
        PLAN_COLUMNS,
        said.rows,
        f"{first_share_words(prepared)}.",
        REFUSED_WORDS if prepared.inputs.breaking else "",
        tuple(sent.items()),
        start_command(prepared, asked.plan, asked.freezes, expects_scores=asked.expects_scores),
        start_path(model),
    )


def _field_of(detail: str) -> str:
    """Return the field that a refusal is about; empty where it is about none."""
    if "open rollout" in detail or "no serving policy" in detail:
        return ""
    if any(word in detail for word in _WITH_FREEZES):
        return "freeze"
    return "plan" if any(word in detail for word in _WITH_PLANS) else "version"
