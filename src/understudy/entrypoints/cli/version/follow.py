"""``understudy version follow``: what a tag of an image registry names anew becomes a version, and gets a rollout."""

import asyncio
import sys
from typing import Annotated, Final

import typer

from understudy.bootstrap.control_plane import DatabaseControlPlane
from understudy.bootstrap.session import Session
from understudy.core.loading.artifact_address import scheme_of
from understudy.core.loading.floating_label import image_of
from understudy.core.loading.oci_address import OciAddress, oci_address
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, ModelName
from understudy.entrypoints.cli.shared.rendering import show
from understudy.entrypoints.cli.shared.session import with_session
from understudy.entrypoints.cli.shared.times import seconds_of
from understudy.entrypoints.logs import keep_log_off_output
from understudy.errors import UnderstudyError
from understudy.lifecycle.followed_label import Followed, FollowedLabel, LabelSeen, OnNew
from understudy.ports.registry.registry import Actor
from understudy.settings import Settings

MAX_FIRST_PERCENT: Final = 10
SALT_BYTES: Final = 4
Uri = Annotated[str, typer.Argument(metavar="URI", help="The tag: oci://registry/repository:tag.")]
Group = Annotated[str, typer.Option("--group", metavar="GROUP", help="Agents load new versions onto these servers.")]
OnNewImage = Annotated[OnNew, typer.Option("--on-new", help="Register it, or also start a rollout once it is loaded.")]
Like = Annotated[
    str | None, typer.Option(metavar="VERSION", help="Whose schemas and settings it has; by default the champion's.")
]
RequiresValidation = Annotated[
    bool, typer.Option("--require-validation", help="No role without a validation that holds.")
]
FirstPercent = Annotated[
    int, typer.Option("--first-percent", min=1, max=100, help="The largest first step that an image may ask for.")
]
Plan = Annotated[str | None, typer.Option("--plan", metavar="PLAN", help="Of images that ask for no steps.")]
Every = Annotated[str, typer.Option("--every", metavar="DURATION", help="How often the registry is asked.")]


def follow(
    *,
    model: ModelName,
    uri: Uri,
    group: Group,
    on_new: OnNewImage = OnNew.REGISTER,
    like: Like = None,
    require_validation: RequiresValidation = False,
    first_percent: FirstPercent = MAX_FIRST_PERCENT,
    plan: Plan = None,
    every: Every = "1m",
    once: Annotated[bool, typer.Option("--once", help="Look once, as a scheduled job does.")] = False,
    as_json: AsJson = False,
) -> None:
    """Follow a tag: register what it names anew, and with --on-new rollout start a rollout of it.

    The version has the address with the digest, and the label that the image's
    annotations say. A rollout has the steps of the annotation
    dev.understudy.rollout.steps, such as 1,5,25,50.

    Nothing is remembered beside the versions and their rollouts: end it and
    start it again at any time. No digest is rolled out twice.
    """
    keep_log_off_output()
    _require_tag(uri)
    seconds = seconds_of(every, "--every")
    followed = Followed(model, group, on_new, like, require_validation, first_percent, plan)
    settings = settings_with_demo()
    if once:
        said = with_session(lambda session: _label(followed, uri, session, settings).step(), settings)
        show({"model": model, "uri": uri, "said": said}, f"{model}: {said}", as_json=as_json)
        return
    with_session(lambda session: _keep_on(_label(followed, uri, session, settings), model, seconds), settings)


def _require_tag(uri: str) -> OciAddress:
    """Refuse what does not move.

    Raises:
        CommandRefused: It is no address of an image, or one with a digest.
    """
    example = "Name a tag: oci://registry/repository:canary."
    if scheme_of(uri) != "oci":
        raise CommandRefused(ExitCode.USAGE, "only tags of image registries are followed", example)
    try:
        address = oci_address(uri)
    except ValueError as problem:
        raise CommandRefused(ExitCode.USAGE, f"the address cannot be used: {problem}", example) from None
    if address.digest is not None:
        raise CommandRefused(ExitCode.USAGE, "an address with a digest is always the same image", example)
    return address


def _label(followed: Followed, uri: str, session: Session, settings: Settings) -> FollowedLabel:
    actor = actor_of_command(f"{uri} names another image")

    async def look() -> LabelSeen:
        from understudy.bootstrap.artifacts import pinned_artifact  # noqa: PLC0415 - its HTTP client takes a while

        pinned = await pinned_artifact(settings, uri, None)
        address = image_of(pinned.uri)
        assert address is not None  # it was pinned
        assert address.digest is not None
        return LabelSeen(pinned.uri, address.digest, pinned.annotations)

    async def start(version: str, plan: str | None) -> None:
        await _start_rollout(DatabaseControlPlane(session, settings), followed.model_name, version, plan, actor)

    return FollowedLabel(
        followed, session.registry, session.loading, session.rollouts, look=look, start=start, actor=actor
    )


async def _start_rollout(
    control_plane: DatabaseControlPlane, model: str, version: str, plan: str | None, actor: Actor
) -> None:
    """Start a rollout as ``understudy rollout start`` does, which asks no person here."""
    from secrets import token_hex  # noqa: PLC0415 - as what follows, only to start one

    from understudy.rollout.operations import StartAsked  # noqa: PLC0415 - numpy
    from understudy.rollout.start.start import require_same_inputs  # noqa: PLC0415

    rollouts = control_plane.rollouts
    asked = StartAsked(model, version, plan)
    prepared = await rollouts.prepare(asked)
    require_same_inputs(prepared)
    await rollouts.require_ready(asked)
    await rollouts.start(asked, prepared, prepared.plan.salt or token_hex(SALT_BYTES), actor)


async def _keep_on(label: FollowedLabel, model: str, seconds: float) -> None:
    """Take step after step, and say what is new; what is away is asked again."""
    last = ""
    while True:
        try:
            said = await label.step()
        except UnderstudyError as problem:
            said = f"{problem.code} {problem.detail}"
        if said != last:
            last = said
            sys.stdout.write(f"{model}: {said}\n")
            sys.stdout.flush()
        await asyncio.sleep(seconds)
