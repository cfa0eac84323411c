"""``understudy version register``: a version as its engineer describes it, checked before it is stored."""

from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple

import typer
from rich.text import Text

from understudy.core.schema.input_diff import NO_DIFFERENCES, InputDifferences, input_differences
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, ModelName, VersionLabel
from understudy.entrypoints.cli.shared.policy_changes.input_warnings import input_warnings
from understudy.entrypoints.cli.shared.rendering import advice_console, facts, is_interactive, show
from understudy.entrypoints.cli.shared.session import with_registry
from understudy.entrypoints.cli.version.choices import (
    Activation,
    AnswerBounds,
    BackendSettings,
    Columns,
    FeatureBounds,
    Labels,
    Like,
    Output,
    Score,
    Shapes,
    Stored,
    backend_of,
    choices_of,
)
from understudy.entrypoints.cli.version.described import (
    Description,
    Source,
    answers_text,
    asked_servers,
    described_version,
    notes_text,
)
from understudy.entrypoints.cli.version.pin import pinned_version
from understudy.entrypoints.cli.version.record_text import version_facts
from understudy.entrypoints.cli.version.tensors_text import tensors_text
from understudy.entrypoints.documents.versions import registered_document
from understudy.entrypoints.logs import keep_log_off_output
from understudy.lifecycle.described_version import require_agreement
from understudy.lifecycle.registry import champion_of, register_version
from understudy.lifecycle.version_description import MAX_NAME_CHARACTERS, is_name
from understudy.ports.registry.registry import NewVersion, Registry, VersionRecord
from understudy.settings import Settings

_PROTOCOLS = "oip, tfserving or torchserve; over HTTP oip-http, tfserving-http, mlflow or json."


def _name(text: str | None) -> str | None:
    if text is not None and not is_name(text):
        raise typer.BadParameter(f"expected 1 to {MAX_NAME_CHARACTERS} characters, got {len(text)}")
    return text


BaseModelName = Annotated[
    str | None,
    typer.Option("--base-model", metavar="NAME", callback=_name, help="What it was trained from: llama-70b-v1."),
]
FamilyName = Annotated[
    str | None,
    typer.Option("--family", metavar="NAME", callback=_name, help="Of the base model; else its name up to a hyphen."),
]


SourceFile = Annotated[str | None, typer.Option("--from", metavar="FILE", help="A JSON file; - reads stdin.")]
FromServer = Annotated[
    bool, typer.Option("--from-server", help="The first --endpoint says the tensors; schemas are proposed.")
]
FromOnnx = Annotated[Path | None, typer.Option("--from-onnx", metavar="FILE", help="An ONNX file says the tensors.")]
FromMlflow = Annotated[
    Path | None, typer.Option("--from-mlflow", metavar="FOLDER", help="An MLflow model's signature says them.")
]
Endpoints = Annotated[
    list[str] | None, typer.Option("--endpoint", metavar="HOST:PORT", help="A model server; repeat for replicas.")
]
Artifact = Annotated[
    str | None, typer.Option("--artifact", metavar="URI", help="Its file or folder; in the place of artifact_path.")
]
Group = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="Have agents load it onto this group of servers.")
]
Pin = Annotated[
    bool, typer.Option("--pin/--no-pin", help="With --group: read an artifact in a store now, and pin what it is.")
]
Framework = Annotated[str | None, typer.Option(metavar="NAME", help="What made it: sklearn, onnx, mlflow.")]
Asked = Annotated[bool, typer.Option("--ask/--no-ask", help="Compare the schemas with what the model servers say.")]
Stores = Annotated[bool, typer.Option("--yes", help="Register schemas that were proposed without asking.")]
Replaces = Annotated[bool, typer.Option("--replace", help="In the place of a version of this name that never served.")]


def register(
    *,
    model: ModelName,
    version: VersionLabel,
    source: SourceFile = None,
    from_server: FromServer = False,
    from_onnx: FromOnnx = None,
    from_mlflow: FromMlflow = None,
    endpoint: Endpoints = None,
    artifact: Artifact = None,
    group: Group = None,
    pin: Pin = True,
    protocol: Annotated[str | None, typer.Option(help=_PROTOCOLS)] = None,
    framework: Framework = None,
    backend: BackendSettings = None,
    base_model: BaseModelName = None,
    family: FamilyName = None,
    like: Like = None,
    columns: Columns = None,
    shape: Shapes = None,
    bounds: FeatureBounds = None,
    stored: Stored = None,
    output: Output = None,
    score: Score = None,
    activation: Activation = None,
    answer_bounds: AnswerBounds = None,
    labels: Labels = None,
    ask: Asked = True,
    replace: Replaces = False,
    yes: Stores = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Register a version as staging; nothing is sent to it until a policy names it.

    FILE has artifact_path, framework and input_schema, and may have artifact_digest, base_model, family,
    output_schema, protocol, endpoints, metrics, backend, deterministic, cache_ttl_seconds and timeout_ms. Without it
    the schemas are proposed from what a model server, an ONNX file or an MLflow model says of its tensors, and
    --columns to --labels say the rest. With --group agents load it, for two hours and for as long as it has a role, and
    an artifact in a store is read and its digest registered.
    """
    keep_log_off_output()
    choices = choices_of(
        columns=columns, shapes=shape, bounds=bounds, stored=stored, output=output, score=score,
        activation=activation, answer_bounds=answer_bounds, labels=labels,
    )  # fmt: skip
    options = {
        "artifact_path": artifact, "framework": framework, "endpoints": endpoint, "protocol": protocol,
        "base_model": base_model, "family": family, "backend": backend_of(backend),
    }  # fmt: skip
    _require_artifact(group, artifact, source)
    described = described_version(Source(source, from_server, from_onnx, from_mlflow, like), options, choices, model)
    endpoints = tuple(described.fields.pop("endpoints", ()))
    new = NewVersion(model_name=model, version=version, group_name=group, endpoints=endpoints, **described.fields)
    _Registration(new, described, ask=ask, pin=pin, replace=replace).carry_out(
        yes=yes, dry_run=dry_run, as_json=as_json
    )


def _require_artifact(group: str | None, artifact: str | None, source: str | None) -> None:
    """Refuse to have agents load what only this machine has under that name."""
    if group is not None and artifact is None and source is None:
        what = "agents load the version, and a file of this machine is not theirs"
        raise CommandRefused(ExitCode.USAGE, what, "Say where they find it: --artifact URI.")


class _Registration(NamedTuple):
    """A version that is being registered."""

    new: NewVersion
    described: Description
    ask: bool
    pin: bool
    replace: bool

    def carry_out(self, *, yes: bool, dry_run: bool, as_json: bool) -> None:
        """Compare it with its servers, ask a person where its schemas are proposed, store it, and show it."""
        settings = self.described.settings or settings_with_demo()
        answers = asked_servers(self.new, settings) if self.ask else []
        require_agreement(answers)
        if self.described.is_proposed and not dry_run and not yes:
            self._confirm(settings)
        made, champion = self._stored(settings, dry_run=dry_run)
        found = NO_DIFFERENCES if champion is None else input_differences(champion.input_schema, made.input_schema)
        document = {
            **registered_document(made, found, dry_run=dry_run),
            "servers": [answer._asdict() for answer in answers],
            "open": list(self.described.notes),
        }
        head, then = self._words(None if champion is None else found, dry_run=dry_run)
        warnings = [] if champion is None else input_warnings(champion.version, self.new.version, found)
        tensors, notes = tensors_text(made), notes_text(self.described.notes)
        texts = (facts(version_facts(made)), *tensors, *notes, *answers_text(answers), *warnings)
        show(document, head, *texts, then, as_json=as_json)

    def _stored(self, settings: Settings, *, dry_run: bool) -> tuple[VersionRecord, VersionRecord | None]:
        """Register it; return it as it is then, and the champion."""

        async def register(registry: Registry) -> tuple[VersionRecord, VersionRecord | None]:
            actor = actor_of_command(None)
            last = await pinned_version(registry, self.new, settings, replace=self.replace) if self.pin else self.new
            made = await register_version(registry, last, actor, replace=self.replace, dry_run=dry_run)
            return made, await champion_of(registry, self.new.model_name)

        return with_registry(register)

    def _confirm(self, settings: Settings) -> None:
        """Show what is proposed, as the registry would take it, and go on only if a person says so.

        Raises:
            CommandRefused: The person does not, or there is none.
        """
        if not is_interactive():
            what = "these schemas are proposed, and there is no terminal to confirm them at"
            raise CommandRefused(ExitCode.USAGE, what, "Look at them with --dry-run, then add --yes.")
        made, _ = self._stored(settings, dry_run=True)
        console = advice_console()
        for text in (*tensors_text(made), *notes_text(self.described.notes)):
            console.print(text)
        if not typer.confirm("Register it with these schemas?", err=True):
            raise CommandRefused(ExitCode.USAGE, "not confirmed; nothing was written", "Options say what to change.")

    def _words(self, found: InputDifferences | None, *, dry_run: bool) -> tuple[Text, str]:
        """Return what was done, and what a person may do next."""
        model, version = self.new.model_name, self.new.version
        if dry_run:
            head = Text(f"Would register {model} {version}; nothing was written.", "bold")
            return head, "Run again without --dry-run to register it as staging."
        head = Text("✔ ", "green").append(f"registered {model} {version} as staging", "bold")
        return head, _loading_step(self.new) + _next_step(model, version, found)


def _loading_step(new: NewVersion) -> str:
    """Return how a person waits until agents have loaded a version; empty where none do."""
    if new.group_name is None:
        return ""
    named = f"{quote(new.model_name)} {quote(new.version)}"
    return f"→ understudy version load {named} --wait waits until it is loaded\n"


def _next_step(model: str, version: str, found: InputDifferences | None) -> str:
    """Return what to do with a new version; ``found`` is ``None`` where there is no champion to differ from."""
    named = f"{quote(model)} {quote(version)}"
    if found is not None and found.breaking:
        return "→ a rollout of it is refused; docs/how-to/connect-a-model-server.md has what to do about a new input"
    if found is not None:
        return f"→ understudy rollout start {named} --reason '…' gives it traffic step by step, and judges it"
    first = f"{quote(model)} --champion {quote(version)}"
    return f"→ understudy model set {first} --reason '…' makes it the first champion: it answers every call"
