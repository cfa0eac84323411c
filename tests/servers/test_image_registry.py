"""Artifacts in a real registry, Debian's ``docker-registry`` (``make test-registry``; REGISTRY names the binary)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from loopback.docker_registry import BINARY, DockerRegistry, Login, a_docker_registry, is_installed
from loopback.oci_registry import LOGINS_OF, TAR, TITLE, tar_of

from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.artifacts.image_tag import ImageTag
from understudy.adapters.artifacts.oci_origin import OciOrigin
from understudy.adapters.artifacts.oci_registry import OciAccess
from understudy.adapters.artifacts.origin import Limits
from understudy.adapters.artifacts.pin import pin_artifact
from understudy.core.loading.oci_address import parse_logins
from understudy.core.rollout.sources.version_source import STEPS, SourceSpec
from understudy.errors import ArtifactForbidden, SourceAway

WEIGHTS = b"weights" * 1_000_000
PUBLIC, PRIVATE = "models/visits", "private/visits"
Start = Callable[[Login], DockerRegistry]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start registries, each with its own way to ask for a login."""
    if not is_installed():
        pytest.skip(f"NOT CHECKED: there is no {BINARY} on this machine. On Debian: apt-get install docker-registry")
    with ExitStack() as started:
        yield lambda login: started.enter_context(a_docker_registry(tmp_path / login, login))


def access_to(registry: DockerRegistry, *, with_login: bool) -> OciAccess:
    logins = parse_logins(LOGINS_OF.format(registry.name)) if with_login else {}
    return OciAccess(logins, frozenset({registry.token_server} - {""}))


def a_file(content: bytes) -> tuple[bytes, str, dict[str, str]]:
    return content, "any/kind", {TITLE: "model.onnx"}


@pytest.mark.parametrize(
    ("login", "repository", "with_login"),
    [("none", PUBLIC, False), ("basic", PUBLIC, True), ("token", PUBLIC, False), ("token", PRIVATE, True)],
)
async def test_files_and_layers_are_pinned_by_their_tag_and_staged_with_what_the_registry_asks_for(
    start: Start, tmp_path: Path, login, repository, with_login
):
    registry = start(login)
    access = access_to(registry, with_login=with_login)
    image = tar_of(("1/labels.txt", b"yes\nno\n"), gzipped=True)
    manifest = registry.push(repository, "canary", a_file(WEIGHTS), (image, f"{TAR}+gzip", {}))
    uri = f"oci://{registry.name}/{repository}:canary"

    pinned = await pin_artifact(uri, None, {"oci": OciOrigin(access)}, Limits())
    registry.push(repository, "canary", a_file(b"other"))
    staged = await FolderStage(tmp_path / "stage", {"oci": OciOrigin(access)}).fetch(pinned.uri, None)

    assert pinned.uri == f"{uri}@{manifest}"
    assert (staged.folder / "model.onnx").read_bytes() == WEIGHTS
    assert (staged.folder / "1/labels.txt").read_bytes() == b"yes\nno\n"


@pytest.mark.parametrize(
    ("login", "repository", "said"), [("basic", PUBLIC, "without a login: 401"), ("token", PRIVATE, "a login: 401")]
)
async def test_what_is_not_public_is_refused_without_a_login(start: Start, tmp_path: Path, login, repository, said):
    registry = start(login)
    registry.push(repository, "canary", a_file(WEIGHTS))
    stranger = FolderStage(tmp_path / "stage", {"oci": OciOrigin(access_to(registry, with_login=False))})

    with pytest.raises(ArtifactForbidden, match=said):
        await stranger.fetch(f"oci://{registry.name}/{repository}:canary", None)


@pytest.mark.parametrize("login", ["none", "basic", "token"])
async def test_a_tag_is_followed_while_it_moves_and_is_away_while_the_registry_is(start: Start, login: Login):
    registry = start(login)
    spec = SourceSpec("oci", "visits", f"oci://{registry.name}/{PUBLIC}:latest", "visits", "latest")
    tag = ImageTag(spec, access_to(registry, with_login=login == "basic"), Limits(seconds=10))
    assert await tag.offered() is None
    first = registry.push(PUBLIC, "latest", a_file(b"one"), annotations={STEPS: "1,5"})

    one, again = await tag.offered(), await tag.offered()
    second = registry.push(PUBLIC, "latest", a_file(b"two"))
    two = await tag.offered()
    registry.stop()
    with pytest.raises(SourceAway):
        await tag.offered()
    registry.start()
    back = await tag.offered()

    assert one is not None
    assert two is not None
    assert (one.note["digest"], one.steps, again) == (first, "1,5", one)
    assert (two.note["digest"], two.steps, back) == (second, None, two)
