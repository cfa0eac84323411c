"""A thousand damaged artifacts, from a folder and from a registry of images: none of them gets onto the stage."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from loopback.oci_registry import Registry, a_registry
from loopback.scripted_server import Answering

from understudy.adapters.artifacts.folder_origin import FolderOrigin
from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.artifacts.oci_origin import OciOrigin
from understudy.adapters.artifacts.oci_registry import OciAccess
from understudy.errors import ArtifactDiffers, ArtifactNotTaken, ArtifactUnreachable

pytestmark = pytest.mark.timeout(300)
FOLDERS, IMAGES = 800, 200
FILES = {"model.onnx": b"weights" * 3_000, "labels.txt": b"yes\nno\n", "1/params.json": b'{"depth": 3}'}
REFUSED = (ArtifactDiffers, ArtifactUnreachable, ArtifactNotTaken)


def put(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def flip(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << chance.randrange(8))]) + content[place + 1 :]


def damage(folder: Path, kind: str, chance: random.Random) -> None:
    file = folder / chance.choice(sorted(FILES))
    content = file.read_bytes()
    match kind:
        case "bit":
            file.write_bytes(flip(content, chance))
        case "truncated":
            file.write_bytes(content[: chance.randrange(len(content))])
        case "added":
            (folder / f"more-{chance.randrange(100)}").touch()
        case "renamed":
            file.rename(file.with_name("other"))
        case "swapped":
            one, two = chance.sample(sorted(FILES), 2)
            (folder / one).write_bytes(FILES[two])
            (folder / two).write_bytes(FILES[one])
        case _:
            file.unlink()


def on(stage: Path) -> list[Path]:
    return [path for path in stage.rglob("*") if path.is_file()]


async def test_no_damaged_folder_is_staged_under_the_digest_of_the_whole_one(tmp_path):
    chance, refused = random.Random(8), Counter[str]()
    put(tmp_path / "artifacts/whole")
    folders = {"": FolderOrigin(tmp_path / "artifacts")}
    whole = await FolderStage(tmp_path / "first", folders).fetch("whole", None)
    stage = FolderStage(tmp_path / "stage", folders)
    for number in range(FOLDERS):
        kind = chance.choice(["bit", "truncated", "added", "renamed", "swapped", "missing"])
        put(tmp_path / "artifacts/damaged")
        damage(tmp_path / "artifacts/damaged", kind, chance)

        with pytest.raises(REFUSED) as problem:
            await stage.fetch("damaged", whole.digest)

        refused[problem.value.code] += 1
        assert on(tmp_path / "stage") == [], f"number {number}, {kind}"
        shutil.rmtree(tmp_path / "artifacts/damaged")

    assert refused["E212"] == FOLDERS


async def test_no_damaged_image_is_staged_whatever_of_it_is_damaged_and_when(tmp_path):
    chance, refused = random.Random(8), Counter[str]()
    with a_registry() as registry:
        stage = FolderStage(
            tmp_path / "stage", {"oci": OciOrigin(OciAccess({}, frozenset(), first_pause_seconds=0.001))}
        )
        for number in range(IMAGES):
            registry.blobs.clear()
            registry.manifests.clear()
            layers = [registry.file(name, content) for name, content in FILES.items()]
            digest = registry.push("7", layers)
            kind = chance.choice(["blob", "truncated", "swapped", "manifest", "moved"])
            damage_image(registry, kind, digest, chance)

            with pytest.raises(REFUSED) as problem:
                await stage.fetch(f"oci://{registry.name}/models/visits@{digest}", None)

            refused[problem.value.code] += 1
            assert on(tmp_path / "stage") == [], f"number {number}, {kind}"

    assert sum(refused.values()) == IMAGES
    assert refused.keys() <= {"E212", "E213", "E219"}


def damage_image(registry: Registry, kind: str, digest: str, chance: random.Random) -> None:
    """Have the registry give something else than the manifest names."""
    one, two = chance.sample(sorted(registry.blobs), 2)
    media_type, manifest = registry.manifests[digest]
    match kind:
        case "blob":
            registry.blobs[one] = flip(registry.blobs[one], chance)
        case "truncated":
            registry.blobs[one] = registry.blobs[one][: chance.randrange(len(registry.blobs[one]))]
        case "swapped":
            registry.blobs[one], registry.blobs[two] = registry.blobs[two], registry.blobs[one]
        case "manifest":
            registry.manifests[digest] = (media_type, flip(manifest, chance))
        case _:
            registry.faults[one] = [exchanged(registry, one)]


def exchanged(registry: Registry, blob: str) -> Callable[[Answering, bytes], object]:
    """The content of a blob is exchanged while it is pulled: the first half is of before."""

    def give(answering: Answering, content: bytes) -> None:
        half = len(content) // 2
        registry.blobs[blob] = content[:half] + bytes(len(content) - half)
        answering.send(200, registry.blobs[blob])

    return give
