"""``understudy drift baseline``: what drift is measured from."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.training import TrainingFile, open_training_file
from understudy.bootstrap.session import Session
from understudy.core.drift.baseline import Baseline, Baselines, baseline_to_json, baselines_of
from understudy.core.drift.logged_baseline import logged_classes
from understudy.core.drift.subject_window import CLASSES, PREDICTION, input_subject
from understudy.core.drift.training_profile import training_columns
from understudy.core.drift.version_drift import MAX_INPUTS
from understudy.core.schema.compile import compile_input_schema, compile_output_schema
from understudy.core.schema.features import Feature
from understudy.core.schema.outputs import has_classes
from understudy.core.schema.schema import OutputSchema
from understudy.entrypoints.cli.drift.text import baseline_change_rows, baseline_change_table
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, ModelName, Reason, VersionLabel, required_reason
from understudy.entrypoints.cli.shared.rendering import names_words, show
from understudy.entrypoints.cli.shared.running.progress import progress_bar
from understudy.entrypoints.cli.shared.session import with_session
from understudy.entrypoints.cli.shared.times import moment_of
from understudy.ports.experiments.outcome_store import FileRow
from understudy.ports.registry.registry import VersionChange, VersionRecord
from understudy.registry.baselines import (
    MAX_SCORES,
    LoggedProfile,
    Profile,
    TrainingRefused,
    profile_log,
    profile_training_rows,
)

app = typer.Typer(no_args_is_help=True, help="Set what drift is measured from.", add_completion=False)
SCORE_COLUMN = "score"
CLASS_COLUMN = "class"
SINCE = "14d"
_ROWS_A_STEP = 5_000


class Made(NamedTuple):
    """New baselines, what they are of, and what is to be said of it."""

    baselines: Baselines
    source: str
    rows: int
    notes: Sequence[str] = ()


class Table(NamedTuple):
    """An open file of training data, and whose it is."""

    version: str
    """Model and version, for words."""
    features: Sequence[Feature]
    output: OutputSchema
    path: Path
    opened: TrainingFile

    @property
    def has(self) -> str:
        """Its columns in words."""
        return f"it has: {names_words(self.opened.columns)}"

    @property
    def inputs(self) -> str:
        """The version's inputs in words."""
        return names_words([feature.name for feature in self.features])


@app.callback()
def root() -> None:
    """Keep ``understudy drift baseline`` a group, though ``set`` is its only command."""


@app.command("set")
def set_baseline(
    *,
    model: ModelName,
    version: VersionLabel,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Training data: CSV with a header, or Parquet.")
    ] = None,
    from_log: Annotated[
        bool, typer.Option("--from-log", help="The scores that the version gave, and the inputs that were logged.")
    ] = False,
    since: Annotated[str | None, typer.Option(metavar="TIME", help=f"With --from-log: from then on [{SINCE}].")] = None,
    score_column: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"With --from: the version's score in it [{SCORE_COLUMN}].")
    ] = None,
    class_column: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"With --from: the version's class in it [{CLASS_COLUMN}].")
    ] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="With --from: only these columns.")] = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Set what predictions and inputs of a version are compared with; what FILE does not have stays as it is.

    Columns of FILE are named like the version's inputs, and score; others are left alone. Nothing of FILE is kept but
    means, shares and histograms.
    """
    of_file = {"--score-column": score_column, "--class-column": class_column, "--columns": columns}
    _check_options(source, since, of_file, from_log=from_log)
    actor = actor_of_command(required_reason(reason, dry_run=dry_run))
    record = with_session(lambda session: session.registry.show_version(model, version))
    made = _from_log(record, since or SINCE) if source is None else _from_file(record, source, of_file)

    async def work(session: Session) -> VersionChange:
        return await session.registry.set_baselines(
            model, version, made.baselines, actor, source=made.source, dry_run=dry_run
        )

    changed = with_session(work)
    before, after = _by_subject(_readable(changed.before.metrics)), _by_subject(made.baselines)
    head = Text(f"Would set the baseline of {model} {version} from {made.source}; nothing was written.", "bold")
    then = "Run again without --dry-run to set it."
    if not dry_run:
        head = Text("✔ ", "green").append(f"baseline of {model} {version} set from {made.source}", "bold")
        then = f"→ understudy drift report {quote(model)} {quote(version)}"
    document = {"baseline": _change_document(model, version, made, before, after), "dry_run": dry_run}
    notes = [Text(note, "dim") for note in made.notes]
    changes = baseline_change_table(baseline_change_rows(before, after))
    show(document, head, changes, *notes, Text(then, "cyan"), as_json=as_json)


def _change_document(
    model: str, version: str, made: Made, before: Mapping[str, Baseline], after: Mapping[str, Baseline]
) -> dict[str, Any]:
    return {
        "model": model,
        "version": version,
        "source": made.source,
        "rows": made.rows,
        "before": {name: baseline_to_json(known) for name, known in before.items() if name in after},
        "after": {name: baseline_to_json(known) for name, known in after.items()},
        "notes": list(made.notes),
    }


def _check_options(
    source: Path | None, since: str | None, of_file: Mapping[str, str | None], *, from_log: bool
) -> None:
    if (source is not None) == from_log:
        raise CommandRefused(
            ExitCode.USAGE, "a baseline is made of one thing", "Give either --from FILE or --from-log."
        )
    wrong = {"--since": since} if source is not None else of_file
    for option, given in wrong.items():
        if given is not None:
            other = "--from-log" if source is not None else "--from"
            raise CommandRefused(ExitCode.USAGE, f"{option} goes with {other}", f"Leave {option} out.")


# -- from the log ------------------------------------------------------------------------------------------------------


def _from_log(record: VersionRecord, since: str) -> Made:
    now = time.time()
    begins = moment_of(since, now, "--since")
    try:
        features = compile_input_schema(record.input_schema).features
        output = compile_output_schema(record.output_schema)

        async def work(session: Session) -> LoggedProfile:
            facts = await session.metrics.drift_facts(record.id, begins, [CLASSES])
            classes = logged_classes(facts.hours.get(CLASSES, ())) if has_classes(output) else None
            asked = record.id, features, begins, now
            return await profile_log(session.baseline_history, *asked, threshold=output.threshold, classes=classes)

        found = with_session(work)
    except ValueError as problem:
        raise CommandRefused(
            ExitCode.PROBLEM,
            f"the log has too little of {record.model_name} {record.version} since {since}: {problem}",
            "Name an earlier --since, wait for more calls, or use training data: --from FILE.",
        ) from None
    notes = [_logged_inputs_words(record.model_name, found)]
    if found.rows < found.calls:
        notes.append(f"A sample of about {MAX_SCORES:,} of {found.calls:,} scores, by the hash of their prediction id.")
    return Made(found.baselines, f"the log since {since}, {found.rows:,} scores", found.rows, notes)


def _logged_inputs_words(model: str, found: LoggedProfile) -> str:
    if found.baselines.inputs:
        return f"{len(found.baselines.inputs)} inputs, of {found.inputs:,} calls whose inputs were logged."
    return (
        "Inputs keep the baselines that they have: too few are logged. "
        f"To log a share of them: understudy model set {quote(model)} --input-sample-percent 10"
    )


# -- from a file -------------------------------------------------------------------------------------------------------


def _from_file(record: VersionRecord, path: Path, asked: Mapping[str, str | None]) -> Made:
    features = compile_input_schema(record.input_schema).features
    output = compile_output_schema(record.output_schema)
    try:
        with open_training_file(path) as opened:
            table = Table(f"{record.model_name} {record.version}", features, output, path, opened)
            profile = _read(table, asked["--score-column"], asked["--class-column"], asked["--columns"])
    except FileRefused as problem:
        raise CommandRefused(ExitCode.USAGE, str(problem), problem.next_step) from None
    except TrainingRefused as problem:
        raise CommandRefused(
            ExitCode.PROBLEM,
            f"{path} {problem}; nothing was written",
            "Correct it, or read only columns that are right: --columns A,B.",
        ) from None
    return Made(profile.baselines, f"{path.name}, {profile.rows:,} rows", profile.rows, _notes(profile))


def _read(table: Table, score_column: str | None, class_column: str | None, only: str | None) -> Profile:
    score = _answer_column(table, score_column, "--score-column", SCORE_COLUMN)
    label = _answer_column(table, class_column, "--class-column", CLASS_COLUMN if has_classes(table.output) else None)
    wanted = None if only is None else [name.strip() for name in only.split(",")]
    for name in wanted or ():
        if name not in (score, label):
            _check_wanted(table, name)
    columns = training_columns(
        table.features, table.opened.columns, score, wanted, threshold=table.output.threshold, label=label
    )
    if not columns.names:
        raise CommandRefused(
            ExitCode.USAGE,
            f"no column of {table.path} is a single input of {table.version}, or its score; {table.has}",
            f"Name columns like its inputs: {table.inputs}.",
        )
    if len(columns.features) > MAX_INPUTS:
        raise CommandRefused(
            ExitCode.USAGE,
            f"{table.path} has {len(columns.features)} inputs of {table.version}; {MAX_INPUTS} are set at most",
            "Name those that matter: --columns A,B.",
        )
    return profile_training_rows(
        _with_progress(table.opened, columns.names), columns, table.opened.columns, table.features
    )


def _answer_column(table: Table, asked: str | None, option: str, usual: str | None) -> str | None:
    """Return the column of an answer, if there is one; an input of that name is one only if the option names it."""
    if asked is None:
        is_input = any(feature.name == usual for feature in table.features)
        return usual if usual in table.opened.columns and not is_input else None
    if asked not in table.opened.columns:
        raise CommandRefused(
            ExitCode.USAGE, f"{option}: {table.path} has no column {asked!r}; {table.has}", "Name one of them."
        )
    return asked


def _check_wanted(table: Table, name: str) -> None:
    feature = next((feature for feature in table.features if feature.name == name), None)
    problem = ""
    if feature is None:
        problem = f"{name!r} is no input of {table.version}; its inputs: {table.inputs}"
    elif name not in table.opened.columns:
        problem = f"{table.path} has no column {name!r}; {table.has}"
    elif feature.shape:
        problem = f"each value of {name!r} is a list, and drift is judged of single values"
    if problem:
        raise CommandRefused(ExitCode.USAGE, f"--columns: {problem}", f"Leave {name} out.")


def _with_progress(opened: TrainingFile, columns: Sequence[str]) -> Iterator[FileRow]:
    """Yield the rows of a file while a person sees how far it is read."""
    with progress_bar("reading", opened.size) as draw:
        for number, row in enumerate(opened.rows(columns)):
            if number % _ROWS_A_STEP == 0:
                draw(completed=opened.position, description=f"{number:,} rows")
            yield row


def _notes(profile: Profile) -> list[str]:
    notes = []
    if profile.unused:
        notes.append(f"Columns left alone: {names_words(profile.unused)}.")
    if profile.lists:
        notes.append(f"Inputs left out, because each value is a list: {names_words(profile.lists)}.")
    if profile.not_there:
        notes.append(f"Inputs without a value here; their baselines stay: {names_words(profile.not_there)}.")
    if profile.baselines.prediction is None and profile.baselines.classes is None:
        notes.append("No column has the score: the baseline of the predictions stays. --score-column names one.")
    return notes


# -- before and after --------------------------------------------------------------------------------------------------


def _by_subject(baselines: Baselines) -> dict[str, Baseline]:
    answers: dict[str, Baseline | None] = {PREDICTION: baselines.prediction, CLASSES: baselines.classes}
    known = {name: one for name, one in answers.items() if one is not None}
    return known | {input_subject(name): one for name, one in baselines.inputs.items()}


def _readable(metrics: Mapping[str, Any] | None) -> Baselines:
    """Return the baselines there were; of metrics that could not be read, none."""
    try:
        return baselines_of(metrics)
    except ValueError:
        return Baselines(None, {})
