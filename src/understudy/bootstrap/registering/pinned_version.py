"""The artifact of a version that is being registered for agents: read where it lies, and pinned."""

from understudy.core.loading.artifact_address import REMOTE, scheme_of
from understudy.errors import ArtifactForbidden, ArtifactUnreachable
from understudy.ports.registry.registry import Actor, NewVersion, Registry
from understudy.registry.changes import register_version
from understudy.settings import Settings


async def pinned_version(
    registry: Registry, new: NewVersion, settings: Settings, actor: Actor, *, replace: bool = False
) -> NewVersion:
    """Return a version as it is to be registered: with the digest of its artifact, where agents load it from a store.

    What the registry refuses is refused before the artifact, which may be large, is read.

    Raises:
        ArtifactDiffers: The artifact has another digest than the description.
        ArtifactUnreachable, ArtifactForbidden, ArtifactNotTaken: It cannot be read from here, or not be loaded.
        UnderstudyError: The registry takes no such version.
    """
    if new.group_name is None or scheme_of(new.artifact_path) not in REMOTE:
        return new
    from understudy.bootstrap.artifacts import pinned_artifact  # noqa: PLC0415 - few commands need what reads artifacts

    await register_version(registry, new, actor, replace=replace, dry_run=True)
    try:
        pinned = await pinned_artifact(settings, new.artifact_path, new.artifact_digest)
    except (ArtifactUnreachable, ArtifactForbidden) as problem:
        hint = "Mend that, or add --no-pin: the artifact is then pinned when an agent fetches it first."
        raise type(problem)(problem.detail, hint=hint) from None
    return new._replace(artifact_path=pinned.uri, artifact_digest=pinned.digest)
