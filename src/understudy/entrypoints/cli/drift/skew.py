"""``understudy drift skew``: are features served as the feature store has them?"""

from shlex import quote

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from understudy.bootstrap.session import Session
from understudy.core.drift.report import Drift, DriftState, percent_words
from understudy.core.drift.skew.judgement import FeatureSkew
from understudy.core.durations import duration_words
from understudy.entrypoints.cli.drift.text import NextStep
from understudy.entrypoints.cli.shared.rendering import Column, a_table
from understudy.entrypoints.cli.shared.screens import Drawn
from understudy.entrypoints.cli.shared.times import moment_words
from understudy.entrypoints.documents.skew import skew_document
from understudy.monitoring.skew_view import FeatureView, SkewVerdict, SkewView, VersionSkew, view_skew

_STORE = "where\n  UNDERSTUDY_FEATURE_REDIS_URL or UNDERSTUDY_FEATURE_TABLE names the store"
_UNREAD = "says whether a monitor leads;\n  its feature_skew_calls_total counts calls that the store did not answer"
_STYLES = {SkewVerdict.SKEW: "bold red", SkewVerdict.NONE: "bold green"}


async def drawn_skew(session: Session, model: str, version: str | None) -> Drawn:
    """Return what is served unlike the feature store; raises as :func:`view_skew`."""
    view = await view_skew(session.metrics, session.registry, model, version)
    return Drawn({"report": {**skew_document(view), "next": next_step(view).command}}, skew_texts(view))


def skew_texts(view: SkewView) -> list[RenderableType]:
    """Return a report for people."""
    head = Text(f"{view.model_name}   {duration_words(view.judged_seconds)} until {moment_words(view.now)} UTC", "dim")
    head.stylize("bold", 0, len(view.model_name))
    texts: list[RenderableType] = [head, "", Text(view.sentence, _STYLES.get(view.verdict, "bold"))]
    for version in view.versions:
        if version.features:
            texts += ["", _version_line(version), _table(version, view.now)]
            said = [one.skew.words for one in version.features if one.skew.is_skewed]
            texts += [Padding(words, (0, 0, 0, 2)) for words in said]
    then = next_step(view)
    return [*texts, "", Text(f"→ {then.command}\n  {then.purpose}", "cyan")]


def next_step(view: SkewView) -> NextStep:
    """Return what to do now."""
    model = quote(view.model_name)
    if view.verdict is SkewVerdict.SKEW:
        return NextStep(f"understudy drift report {model}", "says what it did to the inputs and the predictions")
    if view.is_old and view.input_sample_percent != 0:
        return NextStep("understudy doctor", _UNREAD)
    if view.input_sample_percent == 0:
        purpose = f"logs the inputs of some entities, which a monitor compares {_STORE}"
        return NextStep(f"understudy model set {model} --input-sample-percent 5", purpose)
    if view.verdict is SkewVerdict.NOT_COMPARED:
        return NextStep("understudy serve monitor", f"compares the calls of each minute {_STORE}")
    return NextStep(f"understudy drift report {model}", "compares the inputs with the training data")


def _version_line(version: VersionSkew) -> Text:
    return Text(f"v{version.version}", "bold").append(f"  {version.role.value if version.role else ''}", "cyan")


def _table(version: VersionSkew, until: float) -> RenderableType:
    columns = [
        Column("feature"),
        Column("calls", drop=2, right=True),
        Column("other value", right=True),
        Column("no value", right=True),
        Column("times", drop=1, right=True),
        Column("training", drop=3),
        Column("state"),
    ]
    return a_table(columns, [_row(one, until) for one in version.features])


def _row(view: FeatureView, until: float) -> tuple[str | Text, ...]:
    skew = view.skew
    return (
        skew.feature,
        f"{skew.calls:,}",
        _share(skew.differs, skew.calls),
        _share(skew.missing, skew.calls),
        skew.times,
        _training(view.training),
        _state(skew, until),
    )


def _share(calls: int, of: int) -> str:
    if not calls or not of:
        return "-"
    return percent_words(calls / of)


def _training(drift: Drift | None) -> Text:
    if drift is None or drift.shown is None:
        return Text("-", "dim")
    return Text(drift.shown.words, "red" if drift.state is DriftState.DRIFT else "green")


def _state(skew: FeatureSkew, until: float) -> Text:
    if skew.is_skewed:
        since = skew.drift.since_seconds
        return Text("✖ skewed" if since is None else f"✖ since {moment_words(since, until)}", "red")
    if skew.drift.state is DriftState.OK:
        return Text("✔", "green")
    return Text("… too early", "yellow")
