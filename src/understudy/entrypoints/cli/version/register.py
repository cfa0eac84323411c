"""``understudy version register``: a version as its engineer describes it, checked before it is stored."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from shlex import quote
from typing import NamedTuple

import typer
from rich.text import Text

from understudy.bootstrap.control_plane import ControlPlane
from understudy.bootstrap.registering.pinned_version import pinned_version
from understudy.core.schema.input_diff import NO_DIFFERENCES, InputDifferences, input_differences
from understudy.core.upstream.same_call import SameCall
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.environment import settings_of_place
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, ModelName, VersionLabel
from understudy.entrypoints.cli.shared.policy_changes.input_warnings import input_warnings
from understudy.entrypoints.cli.shared.policy_changes.same_call_warnings import same_call_warnings
from understudy.entrypoints.cli.shared.rendering import advice_console, facts, is_interactive, show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.entrypoints.cli.version.choices import backend_of, choices_of
from understudy.entrypoints.cli.version.described import (
    Description,
    Source,
    answers_text,
    asked_servers,
    described_version,
    notes_text,
)
from understudy.entrypoints.cli.version.loading import group_warnings, replicas_of
from understudy.entrypoints.cli.version.record_text import version_facts
from understudy.entrypoints.cli.version.register_options import (
    Activation,
    AnswerBounds,
    Artifact,
    Asked,
    BackendSettings,
    BaseModelName,
    Columns,
    Endpoints,
    FamilyName,
    FeatureBounds,
    Framework,
    FromMlflow,
    FromOnnx,
    FromServer,
    Group,
    Labels,
    Like,
    Output,
    Pin,
    Protocol,
    Replaces,
    ReplicasOption,
    RequiresValidation,
    Score,
    Shapes,
    SourceFile,
    Stored,
    Stores,
)
from understudy.entrypoints.cli.version.tensors_text import tensors_text
from understudy.entrypoints.documents.versions import registered_document
from understudy.entrypoints.logs import keep_log_off_output
from understudy.errors import NotRegistered, ScopeMissing
from understudy.ports.loading.loading_registry import VersionLoading
from understudy.ports.registry.registry import NewVersion, VersionRecord
from understudy.registry.changes import champion_of, register_version, same_calls_of
from understudy.registry.described_version import require_agreement
from understudy.settings import Settings


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
    require_validation: RequiresValidation = False,
    replicas: ReplicasOption = None,
    pin: Pin = True,
    protocol: Protocol = None,
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

    The FILE of --from has artifact_path, framework and input_schema, and may
    have artifact_digest, base_model, family, output_schema, protocol,
    endpoints, metrics, backend, deterministic, cache_ttl_seconds, timeout_ms.

    The other sources say tensors, of which schemas are proposed and shown.

    With --group agents load it, for two hours and for as long as it has a
    role, and an artifact in a store is read and its digest registered.
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
    asked = {"--require-validation": require_validation, "--replicas": replicas is not None}
    _require_agents(group, artifact, source, from_server=from_server, asked=asked)
    described = described_version(Source(source, from_server, from_onnx, from_mlflow, like), options, choices, model)
    new = _new_version(described, model, version, group, replicas, requires_validation=require_validation)
    _Registration(new, described, ask=ask, pin=pin, replace=replace).run(yes=yes, dry_run=dry_run, as_json=as_json)


def _new_version(
    described: Description,
    model_name: str,
    version: str,
    group: str | None,
    replicas: str | None,
    *,
    requires_validation: bool,
) -> NewVersion:
    endpoints = tuple(described.fields.pop("endpoints", ()))
    return NewVersion(
        model_name=model_name,
        version=version,
        group_name=group,
        requires_validation=requires_validation,
        replicas=replicas_of(replicas),
        endpoints=endpoints,
        **described.fields,
    )


def _require_agents(
    group: str | None, artifact: str | None, source: str | None, *, from_server: bool, asked: Mapping[str, bool]
) -> None:
    """Refuse to have agents load what only this machine, or another server, has; and to ask for what no agent finds."""
    if group is None:
        for option in (option for option, is_asked in asked.items() if is_asked):
            what = f"{option} asks for what agents do, and no agent loads the version"
            raise CommandRefused(ExitCode.USAGE, what, "Name the group of servers with --group, or leave it out.")
        return
    if from_server:
        what = "--from-server registers the server that it asks, and agents load a version onto servers of their group"
        raise CommandRefused(ExitCode.USAGE, what, "Leave --group out, or give --from-onnx, --from-mlflow or --from.")
    if artifact is None and source is None:
        what = "agents load the version, and a file of this machine is not theirs"
        raise CommandRefused(ExitCode.USAGE, what, "Say where they find it: --artifact URI.")


class _Registration(NamedTuple):
    """A version that is being registered."""

    new: NewVersion
    described: Description
    ask: bool
    pin: bool
    replace: bool

    def run(self, *, yes: bool, dry_run: bool, as_json: bool) -> None:
        """Compare it with its servers, ask a person where its schemas are proposed, store it, and show it."""
        settings = self.described.settings or settings_of_place()
        answers = asked_servers(self.new, settings) if self.ask else []
        require_agreement(answers)
        if self.described.is_proposed and not dry_run and not yes:
            self._confirm(settings)
        made, champion, is_other, groups, same = self._stored(settings, dry_run=dry_run)
        found = NO_DIFFERENCES if champion is None else input_differences(champion.input_schema, made.input_schema)
        document = {
            **registered_document(made, found, same, dry_run=dry_run),
            "servers": [answer._asdict() for answer in answers],
            "open": list(self.described.notes),
        }
        head, then = self._words(None if champion is None else found, is_other=is_other, dry_run=dry_run)
        warnings = [] if champion is None else input_warnings(champion.version, self.new.version, found)
        warnings += same_call_warnings(same)
        tensors, notes = tensors_text(made), notes_text(self.described.notes)
        group = self.new.group_name
        document["group"] = group
        if group is not None:
            warnings += group_warnings(group, groups)
        said = facts([*version_facts(made), *([] if group is None else [("group", _group_words(self.new))])])
        texts = (said, *tensors, *notes, *answers_text(answers), *warnings)
        show(document, head, *texts, then, as_json=as_json)

    def _stored(self, settings: Settings, *, dry_run: bool) -> "_Stored":
        """Register it, or say what that would make."""

        async def register(control_plane: ControlPlane) -> _Stored:
            registry, actor = control_plane.registry, actor_of_command(None)
            there = [one.version for one in await registry.list_versions(self.new.model_name)] if self.replace else ()
            last = self.new
            if self.pin:
                last = await pinned_version(registry, last, settings, actor, replace=self.replace)
            made = await register_version(registry, last, actor, replace=self.replace, dry_run=dry_run)
            champion, groups = await champion_of(registry, last.model_name), None
            if last.group_name is not None:
                groups = await _groups(control_plane.loading, last)
            same = await same_calls_of(registry, made)
            return _Stored(made, champion, last.version in there, groups, same)

        return with_control_plane(register, settings=settings)

    def _confirm(self, settings: Settings) -> None:
        """Show what is proposed, as the registry would take it, and go on only if a person says so.

        Raises:
            CommandRefused: The person does not, or there is none.
        """
        if not is_interactive():
            what = "these schemas are proposed, and there is no terminal to confirm them at"
            raise CommandRefused(ExitCode.USAGE, what, "Look at them with --dry-run, then add --yes.")
        made, *_ = self._stored(settings, dry_run=True)
        console = advice_console()
        for text in (*tensors_text(made), *notes_text(self.described.notes)):
            console.print(text)
        if not typer.confirm("Register it with these schemas?", err=True):
            raise CommandRefused(ExitCode.USAGE, "not confirmed; nothing was written", "Options say what to change.")

    def _words(self, found: InputDifferences | None, *, is_other: bool, dry_run: bool) -> tuple[Text, str]:
        """Return what was done, and what a person may do next."""
        model, version = self.new.model_name, self.new.version
        if dry_run:
            what = "replace" if is_other else "register"
            head = Text(f"Would {what} {model} {version}; nothing was written.", "bold")
            return head, f"Run again without --dry-run to {what} it{'' if is_other else ' as staging'}."
        done = "replaced {}, which is staging" if is_other else "registered {} as staging"
        head = Text("✔ ", "green").append(done.format(f"{model} {version}"), "bold")
        return head, _loading_step(self.new) + _next_step(model, version, found)


class _Stored(NamedTuple):
    """What registering a version made, or would make."""

    version: VersionRecord
    champion: VersionRecord | None
    is_other: bool
    """Whether it took the place of one."""
    groups: Sequence[str] | None
    """The groups that agents have reported servers of; ``None``: this command's key may not know them."""
    same: Sequence[SameCall]
    """The versions that a model server may not tell from it."""


async def _groups(loading: VersionLoading, new: NewVersion) -> Sequence[str] | None:
    """Return the groups of which agents have reported a server, as far as this command's key may know them."""
    with suppress(NotRegistered, ScopeMissing):
        record = await loading.show(new.model_name, new.version)
        if record is not None:
            return record.groups
    with suppress(ScopeMissing):  # of a dry run, whose version is not there
        return sorted({server.group_name for server in await loading.list_servers()})
    return None


def _group_words(new: NewVersion) -> str:
    on = "" if new.replicas is None else f", on {new.replicas} of its servers"
    return f"{new.group_name}{on}"


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
    check = f"→ understudy version check {named} calls it once more, as callers would; then:\n"
    return f"{check}→ understudy model set {first} --reason '…' makes it the first champion: it answers every call"
