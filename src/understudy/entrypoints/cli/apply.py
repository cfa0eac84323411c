"""``understudy apply``: make policies what their files say."""

import json
import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from understudy.bootstrap.control_plane import ControlPlane
from understudy.core.routing.policy_file import policy_file_schema
from understudy.entrypoints.cli.shared.actor import this_login
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode, exit_code_of
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, Yes, confirm_by_typing, required_reason
from understudy.entrypoints.cli.shared.policy_changes.newcomers import Newcomer, newcomers_of
from understudy.entrypoints.cli.shared.policy_changes.policy_files import (
    Files,
    Paths,
    comparison_document,
    read_files,
    rows_of_model,
    shown_value,
)
from understudy.entrypoints.cli.shared.rendering import Column, a_table, advise, show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.entrypoints.cli.shared.texts.policy_text import difference_text, moves_text, rollout_warning
from understudy.errors import GenerationMoved, RegistryUnavailable, UnderstudyError
from understudy.ports.registry.registry import Actor, ChangedPolicy, Registry
from understudy.registry.policy_changes import differences, moves_traffic
from understudy.registry.policy_files import Comparison, apply_file, compare, listed, propose, refuse_contradicted

app = typer.Typer(add_completion=False)
VIA = "apply"
"""What the audit says that a change came by."""
_COLUMNS = (Column("model"), Column("field"), Column("before"), Column("after"), Column("file", drop=1))
_WORD = "apply"


class _Asked(NamedTuple):
    actor: Actor
    expected: dict[str, int]
    overwrite: bool
    dry_run: bool
    yes: bool


class _Outcome(NamedTuple):
    """What became of one policy."""

    compared: Comparison
    changed: ChangedPolicy | None = None
    problem: UnderstudyError | None = None
    newcomers: Sequence[Newcomer] = ()

    @property
    def warnings(self) -> list[Text]:
        return [
            *(rollout_warning(self.changed, self.compared.open_rollout) if self.changed is not None else ()),
            *(line for newcomer in self.newcomers for line in newcomer.warnings),
        ]


@app.command("apply")
def apply_files(
    *,
    paths: Paths = None,
    file: Files = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Undo what others changed since, and move the split of an open rollout.")
    ] = False,
    expect_generation: Annotated[
        list[str] | None, typer.Option(metavar="MODEL=N", help="Change nothing when that policy has moved on.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Why; kept in the audit after the file's path. Needed outside a terminal.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    print_schema: Annotated[
        bool, typer.Option("--print-schema", help="Print the JSON Schema of a file, for editors, and leave.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make policies what their files say; what a file leaves out is left alone.

    All files are checked, and each change is tried, before the first one is made. A policy that others changed since
    its file was applied is refused with what they changed, and so is one that changes meanwhile.
    """
    if print_schema:
        typer.echo(json.dumps(policy_file_schema(), indent=2))
        return
    files = read_files([*(file or ()), *(paths or ())])
    actor = Actor(this_login(), VIA, reason)
    asked = _Asked(actor, _generations(expect_generation or ()), overwrite, dry_run, yes)

    async def work(control_plane: ControlPlane) -> tuple[list[Comparison], list[_Outcome]]:
        compared = await compare(control_plane.registry, control_plane.rollouts, files)
        return compared, await _apply(control_plane.registry, compared, asked)

    compared, outcomes = with_control_plane(work)
    document = {"apply": _documents(compared, outcomes, dry_run=dry_run), "dry_run": dry_run}
    show(document, *_texts(compared, outcomes, dry_run=dry_run), as_json=as_json)
    failed = next((outcome.problem for outcome in outcomes if outcome.problem is not None), None)
    raise typer.Exit(ExitCode.DONE if failed is None else exit_code_of(failed))


def _generations(asked: Sequence[str]) -> dict[str, int]:
    """Return the generation that each model's policy is expected at.

    Raises:
        CommandRefused: It is not ``MODEL=N``.
    """
    found: dict[str, int] = {}
    for text in asked:
        model, _, generation = text.rpartition("=")
        if not model or not re.fullmatch(r"[0-9]{1,18}", generation):
            raise CommandRefused(
                ExitCode.USAGE, f"--expect-generation: {text!r} is no model's generation", "For example fraud=41."
            )
        found[model] = int(generation)
    return found


async def _apply(registry: Registry, compared: Sequence[Comparison], asked: _Asked) -> list[_Outcome]:
    """Apply what is not as its file says: after every check, and the question whether to."""
    _check_expected(compared, asked.expected)
    if not asked.overwrite:
        refuse_contradicted(compared)
    proposed = await propose(registry, [one for one in compared if not one.is_equal], asked.actor)
    tried = [_Outcome(one, changed, None, await newcomers_of(registry, *changed)) for one, changed in proposed]
    if asked.dry_run:
        return tried
    if any(outcome.changed is not None and outcome.changed.is_changed for outcome in tried):
        required_reason(asked.actor.reason, dry_run=False)
    _confirm(tried, yes=asked.yes)
    made: list[_Outcome] = []
    for outcome in tried:
        try:
            changed = await apply_file(registry, outcome.compared, asked.actor)
        except UnderstudyError as problem:
            made.append(outcome._replace(changed=None, problem=problem))
            if isinstance(problem, RegistryUnavailable):
                break
        else:
            made.append(outcome._replace(changed=changed))
    return made


def _check_expected(compared: Sequence[Comparison], expected: Mapping[str, int]) -> None:
    """Refuse a generation of a model that no file is of, and one that a policy is not at.

    Raises:
        CommandRefused, GenerationMoved: Naming the model.
    """
    generations = {one.file.model_name: one.generation for one in compared}
    for model, wanted in expected.items():
        if model not in generations:
            raise CommandRefused(
                ExitCode.USAGE,
                f"--expect-generation: no file is of the model {model!r}",
                f"The files are of: {listed(generations)}.",
            )
        if wanted != generations[model]:
            raise GenerationMoved(f"the policy of {model} is at generation {generations[model]}, not {wanted}")


def _confirm(tried: Sequence[_Outcome], *, yes: bool) -> None:
    moving = [
        (outcome, outcome.changed)
        for outcome in tried
        if outcome.changed is not None
        and outcome.changed.before is not None
        and moves_traffic(outcome.changed.before, outcome.changed.after)
    ]
    if not moving:
        return
    if not yes:
        advise(*(line.plain for outcome, _ in moving for line in outcome.warnings))
    moves = []
    for _, (before, after) in moving:
        percent = moves_text(before, after)
        moves.append(f"{after.model_name}: {difference_text(before, after)}{percent and f'; {percent}'}")
    confirm_by_typing(_WORD, f"the word {_WORD}", "\n  ".join(["This moves production traffic:", *moves]), yes=yes)


# -- what is printed ---------------------------------------------------------------------------------------------------


def _documents(compared: Sequence[Comparison], outcomes: Sequence[_Outcome], *, dry_run: bool) -> list[dict[str, Any]]:
    became = {outcome.compared.file.model_name: outcome for outcome in outcomes}
    return [_document(one, became.get(one.file.model_name), dry_run=dry_run) for one in compared]


def _document(compared: Comparison, outcome: _Outcome | None, *, dry_run: bool) -> dict[str, Any]:
    document = comparison_document(compared)
    changed = outcome.changed if outcome is not None else None
    problem = outcome.problem if outcome is not None else None
    is_skipped = outcome is None and not compared.is_equal
    document["applied_before"] = document.pop("applied")
    document["changed"] = changed is not None and changed.is_changed and not dry_run
    if changed is not None and not dry_run:
        document["generation"] = changed.after.generation
    document["input_differences"] = {
        newcomer.version: newcomer.found._asdict() for newcomer in (outcome.newcomers if outcome is not None else ())
    }
    document["problem"] = problem and {"code": problem.code, "detail": problem.detail, "next": problem.next_step}
    document["is_skipped"] = is_skipped
    return document


def _texts(compared: Sequence[Comparison], outcomes: Sequence[_Outcome], *, dry_run: bool) -> list[Any]:
    made = [outcome for outcome in outcomes if outcome.changed is not None]
    equal = sum(one.is_equal for one in compared)
    skipped = len(compared) - equal - len(outcomes)
    texts: list[Any] = []
    rows = [row for outcome in made for row in _rows_of(outcome)]
    if rows:
        texts.append(a_table(_COLUMNS, rows))
    texts += [line for outcome in made for line in (*_origin_of(outcome, dry_run=dry_run), *outcome.warnings)]
    for outcome in outcomes:
        if outcome.problem is not None:
            failed, file = outcome.problem, outcome.compared.file
            texts.append(Text("✖ ", "bold red").append(f"{file.model_name} ({file.path}): {failed.detail}"))
            texts.append(Text("  → ", "cyan").append(failed.next_step))
    if skipped:
        texts.append(Text("✖ ", "bold red").append(f"not tried after that: {_policies(skipped)}"))
    texts.append(_verdict(len(made), equal, dry_run=dry_run))
    return texts if dry_run else [*texts, *_advice_of(made)]


def _rows_of(outcome: _Outcome) -> list[tuple[str, ...]]:
    compared, changed = outcome.compared, outcome.changed
    file = compared.file
    found = differences(*changed) if changed is not None else {}
    if compared.policy is None:  # a first policy: its defaults are no news
        found = {name: values for name, values in found.items() if name in file.fields}
    rows = [(name, shown_value(old), shown_value(new), file.path) for name, (old, new) in found.items()]
    return rows_of_model(file.model_name, rows)


def _origin_of(outcome: _Outcome, *, dry_run: bool) -> list[Text]:
    """Say that a policy gets another file, or that the same one names other fields, though no value changes."""
    file, applied = outcome.compared.file, outcome.compared.applied
    is_changed = outcome.changed is not None and outcome.changed.is_changed
    if is_changed and (applied is None or applied.path == file.path):
        return []
    before = "" if applied is None else f"; before: {applied.path}, {_fields(len(applied.fields))}"
    known = "would be known" if dry_run else "is known"
    return [Text(f"{file.model_name} {known} to be from {file.path}, {_fields(len(file.fields))}{before}")]


def _advice_of(made: Sequence[_Outcome]) -> list[Text]:
    """Say how to see when every proxy acts on what was changed."""
    changed = [one.compared.file.model_name for one in made if one.changed is not None and one.changed.is_changed]
    if not changed:
        return []
    model = quote(changed[0]) if len(changed) == 1 else "MODEL"
    return [Text(f"→ understudy model show {model} says when every proxy acts on it")]


def _verdict(made: int, equal: int, *, dry_run: bool) -> Text:
    already = "1 policy is as its file says" if equal == 1 else f"{equal} policies are as their files say"
    if not made:
        return Text(f"{already}; nothing was changed." if equal else "Nothing was changed.")
    rest = f"; {already}" if equal else ""
    if dry_run:
        return Text(f"Would apply {_policies(made)}{rest}; nothing was changed.", "bold")
    return Text("✔ ", "green").append(f"{_policies(made)} applied{rest}", "bold")


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"


def _policies(count: int) -> str:
    return "1 policy" if count == 1 else f"{count} policies"
