"""What is asked before an act on declared tests: the form of a new one and its size, the end of one, a due look."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from understudy.entrypoints.cli.ab.asked import EFFECT, LOOKS, WITHIN, wanted_of
from understudy.entrypoints.cli.ab.tests_text import standing_words
from understudy.entrypoints.cli.ab.text import declare_command, sizes_words
from understudy.entrypoints.cli.shared.errors import CommandRefused
from understudy.entrypoints.cli.shared.times import seconds_of
from understudy.entrypoints.console.views.confirmations.act_form import ActForm
from understudy.entrypoints.console.views.links import experiment_path, experiments_path
from understudy.entrypoints.console.views.policy import Field
from understudy.errors import PolicyRefused
from understudy.experiments.ab_plan import AbSizes, PlanQuestion
from understudy.experiments.declared_rows import MAX_LOOKS
from understudy.experiments.declared_tests import MetricChoice, Wanted
from understudy.experiments.listed_tests import ListedTest

FIELDS = ("metric", "effect", "looks", "within", "version", "per_call", "lower")
_MAX_NAME = 255
_OF_FIELDS = (
    ("metric", "Metric", "", "the name of the outcomes that are compared"),
    ("effect", "Effect", EFFECT, "to be seen: 5% of A's value, or 0.5pt of a share"),
    ("looks", "Looks", str(LOOKS), "how often one may look and decide"),
    ("within", "Within", WITHIN, "outcomes count that long after an entity's first call"),
    ("version", "Version", "", "B; without one the challenger, or the only further arm"),
)


class AskedTest(NamedTuple):
    """A test that is asked for."""

    metric: str
    wanted: Wanted
    choice: MetricChoice
    looks: int
    version: str | None
    """B; ``None``: the challenger, or the only further arm."""


class DeclareForm(NamedTuple):
    """What is asked of a new test."""

    model: str
    sentence: str
    fields: tuple[Field, ...]
    per_call: bool
    lower: bool
    problem: str


def asked_test(values: Mapping[str, str]) -> AskedTest:
    """Return the test that a form asks for.

    Raises:
        PolicyRefused: A field is no such thing; its detail begins with the field's name.
    """
    metric = values.get("metric", "").strip()
    if not 0 < len(metric) <= _MAX_NAME or "\0" in metric:
        raise PolicyRefused("metric: name the outcomes that are compared", hint="As callers send them.")
    try:
        wanted = wanted_of(values.get("effect") or EFFECT)
        within = seconds_of(values.get("within") or WITHIN, "within")
    except CommandRefused as refused:
        raise PolicyRefused(refused.detail.removeprefix("--"), hint=refused.next_step) from None
    choice = MetricChoice(within, values.get("per_call") == "yes", values.get("lower") != "yes")
    return AskedTest(metric, wanted, choice, _looks(values.get("looks") or str(LOOKS)), values.get("version") or None)


def declare_form(
    model: str, versions: Sequence[str], values: Mapping[str, str], refused: PolicyRefused | None = None
) -> DeclareForm:
    """Return the form, with what was asked for and refused."""
    said = "" if refused is None else f"{refused.detail}. {refused.next_step}"
    at = said.partition(":")[0]
    options = (("", "the challenger"), *((one, one) for one in versions))
    fields = tuple(
        Field(
            name,
            label,
            values.get(name, usual),
            hint,
            options if name == "version" else (),
            problem=said if at == name else "",
        )
        for name, label, usual, hint in _OF_FIELDS
    )
    sentence = "A declared test decides, and only at one of its looks: what it is to see does not change any more."
    is_known = any(field.problem for field in fields)
    flags = values.get("per_call") == "yes", values.get("lower") == "yes"
    return DeclareForm(model, sentence, fields, *flags, "" if is_known else said)


def declare_page(sizes: AbSizes, question: PlanQuestion, values: Mapping[str, str]) -> ActForm:
    """Return what is asked before a test is declared: what ``understudy ab plan`` says of what the form asks for."""
    said, asked = sizes_words(sizes, question), asked_test(values)
    command = f"{declare_command(sizes, question)} --within {quote(values.get('within') or WITHIN)}"
    command += " --per-call" if asked.choice.per_call else ""
    command += "" if asked.choice.higher_is_better else " --lower-is-better"
    command += f" --version {quote(asked.version)}" if asked.version else ""
    return ActForm(
        question.model_name,
        "Declare a test",
        said.sentence,
        (("to be seen", said.change), ("terms", said.terms), *said.facts),
        tuple((name, values.get(name, "")) for name in FIELDS),
        "Declare it",
        is_ending=False,
        remark="What it is to see does not change any more. It names your key as who declared it.",
        back=f"{experiments_path(question.model_name)}/new",
        command=command,
    )


def stop_page(found: ListedTest) -> ActForm:
    """Return what is asked before a test is ended."""
    record = found.record
    return ActForm(
        record.model_name,
        f"End test {record.id}",
        f"The test of {record.metric} would be over, and decide nothing; another one of it may be declared then.",
        (("how it stands", standing_words(found)),),
        (("test", str(record.id)),),
        "End it",
        is_ending=True,
        remark="Its figures stay, with your key as who ended it.",
        back=experiment_path(record.model_name, record.id),
        command=f"understudy ab stop {quote(record.model_name)} {record.id}",
    )


def take_page(found: ListedTest) -> ActForm:
    """Return what is asked before an interim analysis is taken."""
    record, test = found.record, found.test
    number = 1 if test is None else len(test.looks) + 1
    return ActForm(
        record.model_name,
        f"Take look {number}",
        f"Look {number} of {record.metric} is taken, if it is due: what it finds is kept, and may decide the test.",
        (("how it stands", standing_words(found)),),
        (("test", str(record.id)),),
        "Take it",
        is_ending=False,
        remark="It cannot be taken back.",
        back=experiment_path(record.model_name, record.id),
        command=f"understudy ab report {quote(record.model_name)} --metric {quote(record.metric)}",
    )


def _looks(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_LOOKS))
    if not is_number or not 0 < int(text) <= MAX_LOOKS:
        raise PolicyRefused(f"looks: a whole number from 1 to {MAX_LOOKS}, not {text!r}", hint="For example 5.")
    return int(text)
