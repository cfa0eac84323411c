"""The stage on a real disk: what is copied, what is refused, and that nothing half-done is ever found there."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from understudy.adapters.artifacts import artifact_tree, folder_origin, folder_stage
from understudy.adapters.artifacts.bounded_thread import NAME
from understudy.adapters.artifacts.folder_origin import FolderOrigin
from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.artifacts.origin import Limits
from understudy.adapters.dev_server.example_models import example_version
from understudy.core.loading.memory import StagedFile
from understudy.core.loading.onnx_trees import tree_bytes
from understudy.errors import ArtifactDiffers, ArtifactNotTaken, ArtifactUnreachable

WEIGHTS = b"weights" * 1000
OTHER = "sha256:" + "0" * 64


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "artifacts/visits/7/1").mkdir(parents=True)
    (tmp_path / "artifacts/visits/7/model.onnx").write_bytes(WEIGHTS)
    (tmp_path / "artifacts/visits/7/1/labels.txt").write_text("yes\nno\n")
    return tmp_path / "artifacts"


@pytest.fixture
def stage(root: Path, tmp_path: Path) -> FolderStage:
    return stage_of(root, tmp_path)


def stage_of(root: Path, folder: Path, seconds: float = 60.0) -> FolderStage:
    origin = FolderOrigin(root)
    return FolderStage(folder / "stage", {"": origin, "file": origin}, Limits(seconds=seconds))


def left_on(stage: Path) -> list[str]:
    return sorted(path.name for path in stage.iterdir()) if stage.exists() else []


def refuse_listing(unreadable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the system refuse to list a folder, as it does to any user but root, who may be the one that runs tests."""
    list_folder = os.scandir

    def list_or_refuse(folder: str | int) -> object:
        if folder == str(unreadable):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return list_folder(folder)

    monkeypatch.setattr(os, "scandir", list_or_refuse)


async def test_a_file_is_staged_under_its_own_sha256(stage, root):
    staged = await stage.fetch("visits/7/model.onnx", None)

    assert staged.digest == f"sha256:{sha256(WEIGHTS).hexdigest()}"
    assert (staged.folder / "model.onnx").read_bytes() == WEIGHTS
    assert await stage.fetch(f"file://{root}/visits/7/model.onnx", staged.digest) == staged


async def test_a_folder_is_staged_whole_and_its_digest_depends_on_every_file(stage, root):
    staged = await stage.fetch(str(root / "visits/7"), None)
    (root / "visits/7/1/labels.txt").write_text("no\nyes\n")
    changed = await stage.fetch("visits/7", None)

    assert (staged.folder / "1/labels.txt").read_text() == "yes\nno\n"
    assert changed.digest != staged.digest


async def test_another_content_than_the_expected_one_is_refused_and_nothing_of_it_stays(stage, tmp_path):
    with pytest.raises(ArtifactDiffers, match=r"is sha256:[0-9a-f]{64}, not sha256:0{64}") as refused:
        await stage.fetch("visits/7", OTHER)

    assert refused.value.code == "E212"
    assert left_on(tmp_path / "stage") == []


@pytest.mark.parametrize("expected", ["", "md5:abc", "sha256:" + "A" * 64, "../artifacts/visits/7"])
async def test_a_text_that_is_no_digest_is_no_name_of_a_folder(stage, expected):
    with pytest.raises(ArtifactDiffers, match="64 hex digits"):
        await stage.fetch("visits/7", expected)


async def test_what_is_staged_is_served_when_its_source_has_gone(stage, root):
    staged = await stage.fetch("visits/7/model.onnx", None)
    (root / "visits/7/model.onnx").unlink()

    assert await stage.fetch("visits/7/model.onnx", staged.digest) == staged


async def test_a_damaged_copy_is_noticed_and_copied_again(stage):
    staged = await stage.fetch("visits/7/model.onnx", None)
    (staged.folder / "model.onnx").write_bytes(b"bit rot")

    assert await stage.verified(staged.digest) is None
    again = await stage.fetch("visits/7/model.onnx", staged.digest)

    assert (again.folder / "model.onnx").read_bytes() == WEIGHTS


async def test_a_second_version_with_the_same_artifact_leaves_the_copy_of_the_first_where_it_is(stage, root, tmp_path):
    (root / "visits/8").mkdir()
    (root / "visits/8/model.onnx").write_bytes(WEIGHTS)
    first = await stage.fetch("visits/7/model.onnx", None)
    folder = first.folder.stat().st_ino

    second = await stage.fetch("visits/8/model.onnx", None)

    assert (second, second.folder.stat().st_ino) == (first, folder)
    assert left_on(tmp_path / "stage") == [first.folder.name]


async def test_versions_with_the_same_artifact_can_be_fetched_at_once(stage, tmp_path):
    staged = await asyncio.gather(*(stage.fetch("visits/7", None) for _ in range(20)))

    assert len(set(staged)) == 1
    assert left_on(tmp_path / "stage") == [staged[0].folder.name]


class HangingDisk:
    """A file system that hangs in the first block that is read, until it is let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hangs, self.goes_on = threading.Event(), threading.Event()
        self.blocks = 0
        monkeypatch.setattr(folder_origin, "BLOCK_BYTES", 1_000)
        for module in (artifact_tree, folder_stage):
            monkeypatch.setattr(module, "sha256", self._sha256)

    def _sha256(self) -> "HangingDisk":
        return self

    def update(self, block: bytes) -> None:
        self.blocks += 1
        self.hangs.set()
        self.goes_on.wait()

    def hexdigest(self) -> str:
        return "ab" * 32

    async def let_go_on(self) -> None:
        """Return when no thread works on an artifact any more."""
        self.goes_on.set()
        for thread in threading.enumerate():
            if thread.name == NAME:
                await asyncio.to_thread(thread.join)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDisk]:
    disk = HangingDisk(monkeypatch)
    yield disk
    disk.goes_on.set()


async def test_a_copy_that_is_broken_off_ends_at_its_next_block_and_leaves_nothing(stage, disk, tmp_path):
    copying = asyncio.create_task(stage.fetch("visits/7/model.onnx", None))
    await asyncio.to_thread(disk.hangs.wait)

    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    await disk.let_go_on()

    assert disk.blocks == 1
    assert left_on(tmp_path / "stage") == []


async def test_a_read_that_hangs_ends_with_its_time(root, disk, tmp_path):
    stage = stage_of(root, tmp_path, seconds=0.01)

    with pytest.raises(ArtifactUnreachable, match=r"cannot be copied: it takes longer than 0\.01 s"):
        await stage.fetch("visits/7/model.onnx", None)
    await disk.let_go_on()

    assert left_on(tmp_path / "stage") == []


async def test_a_staged_copy_that_cannot_be_read_in_time_is_said_to_be_so(root, disk, tmp_path):
    (tmp_path / "stage" / ("ab" * 32)).mkdir(parents=True)
    (tmp_path / "stage" / ("ab" * 32) / "model.onnx").write_bytes(WEIGHTS)
    stage = stage_of(root, tmp_path, seconds=0.01)

    with pytest.raises(ArtifactUnreachable, match=r"cannot be verified: it takes longer than 0\.01 s"):
        await stage.verified("sha256:" + "ab" * 32)
    await disk.let_go_on()

    assert disk.blocks <= 1


@pytest.mark.parametrize("damage", ["truncated", "added", "renamed", "emptied"])
async def test_every_kind_of_damage_is_noticed(stage, damage):
    staged = await stage.fetch("visits/7", None)
    file = staged.folder / "model.onnx"
    match damage:
        case "truncated":
            file.write_bytes(WEIGHTS[:-1])
        case "added":
            (staged.folder / "more").touch()
        case "renamed":
            file.rename(staged.folder / "other.onnx")
        case _:
            file.unlink()
            (staged.folder / "1/labels.txt").unlink()

    assert await stage.verified(staged.digest) is None


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("visits/8", "No such file"),
        ("../outside", "outside"),
        ("out", "outside"),
        ("file:///etc/hostname", "outside"),
        ("file://host/visits/7", "neither a path"),
        ("s3://bucket/visits/7", "none of the addresses that this agent reads: paths, file:"),
        ("file://[x", "Invalid IPv6 URL"),
        ("file:///visits%00", "null"),
        ("visits\0", "null"),
        ("visits/" + "7" * 300, "File name too long"),
    ],
)
async def test_what_is_not_below_the_root_is_not_read(stage, root, uri, said):
    (root.parent / "outside").write_bytes(b"secret")
    (root / "out").symlink_to(root.parent / "outside")

    with pytest.raises(ArtifactUnreachable, match=said) as refused:
        await stage.fetch(uri, None)

    assert refused.value.code == "E213"


@pytest.mark.parametrize("kind", ["link", "pipe"])
async def test_links_and_devices_inside_a_folder_are_refused(stage, root, tmp_path, kind):
    odd = root / "visits/7/1/odd"
    if kind == "link":
        odd.symlink_to("/etc/hostname")
    else:
        os.mkfifo(odd)

    with pytest.raises(ArtifactUnreachable, match="neither a file nor a folder"):
        await stage.fetch("visits/7", None)

    assert left_on(tmp_path / "stage") == []


async def test_a_subfolder_that_cannot_be_listed_is_not_left_out_of_the_artifact(stage, root, tmp_path, monkeypatch):
    unreadable = root / "visits/7/1"
    refuse_listing(unreadable, monkeypatch)
    with pytest.raises(ArtifactUnreachable, match=f"Permission denied: {unreadable}"):
        await stage.fetch("visits/7", None)

    monkeypatch.undo()
    assert left_on(tmp_path / "stage") == []


async def test_a_copy_of_which_a_subfolder_cannot_be_listed_is_not_verified(stage, monkeypatch):
    staged = await stage.fetch("visits/7/model.onnx", None)
    (staged.folder / "more").mkdir()
    refuse_listing(staged.folder / "more", monkeypatch)

    assert await stage.verified(staged.digest) is None


async def test_no_other_artifact_has_the_digest_of_a_folder(stage, root, tmp_path):
    lines = [f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in (root / "visits/7").glob("*.onnx")]
    (root / "listing").write_text("".join(lines))
    (root / "odd").mkdir()
    (root / f"odd/a\n{'0' * 64}  b").write_bytes(b"two names in one")

    with pytest.raises(ArtifactNotTaken, match="is a list of digests of files"):
        await stage.fetch("listing", None)
    with pytest.raises(ArtifactNotTaken, match="control character"):
        await stage.fetch("odd", None)
    (root / "listing").write_text("".join(lines) + "and more")

    assert (await stage.fetch("listing", None)).folder.is_dir()


async def test_folders_count_as_files_do(root, tmp_path):
    for number in range(3):
        (root / f"deep/{number}/a/b").mkdir(parents=True)
        (root / f"deep/{number}/a/b/file").touch()
    origin = FolderOrigin(root)

    with pytest.raises(ArtifactUnreachable, match="more than 11 files"):
        await FolderStage(tmp_path / "stage", {"": origin}, Limits(most_files=11)).fetch("deep", None)
    assert await FolderStage(tmp_path / "stage", {"": origin}, Limits(most_files=12)).fetch("deep", None)


@pytest.mark.parametrize("kind", ["an empty folder", "a folder of empty folders", "a pipe"])
async def test_what_holds_no_file_is_no_artifact(stage, root, tmp_path, kind):
    if kind == "a pipe":
        os.mkfifo(root / "odd")
    else:
        (root / "odd" / ("1/more" if "of" in kind else ".")).mkdir(parents=True)

    with pytest.raises(ArtifactUnreachable, match=r"holds no file|Not a directory"):
        await stage.fetch("odd", None)

    assert left_on(tmp_path / "stage") == []


async def test_only_what_is_named_stays_and_half_copies_go(stage, tmp_path):
    kept = await stage.fetch("visits/7/model.onnx", None)
    await stage.fetch("visits/7", None)
    (tmp_path / "stage/.part-of-a-killed-agent").mkdir()

    await stage.keep_only(frozenset([kept.digest]))

    assert left_on(tmp_path / "stage") == [kept.folder.name]


def test_the_bounds_of_one_artifact_are_those_of_the_how_to():
    assert Limits() == (20 * 1024**3, 100_000, 600.0)


async def test_the_files_of_an_artifact_are_listed_with_how_much_of_an_onnx_file_is_trees(stage, root):
    forest = example_version("visits", 2).read()
    (root / "visits/7/forest.onnx").write_bytes(forest)
    (root / "visits/7/empty.onnx").touch()
    (root / "visits/7/forest.bin").write_bytes(forest)
    staged = await stage.fetch("visits/7", None)

    listed = sorted(await stage.files_of(staged.digest))

    assert listed == [
        StagedFile("1/labels.txt", 7),
        StagedFile("empty.onnx", 0),
        StagedFile("forest.bin", len(forest)),
        StagedFile("forest.onnx", len(forest), tree_bytes(forest)),
        StagedFile("model.onnx", len(WEIGHTS)),
    ]
    assert tree_bytes(forest) > 0
    assert list(await stage.files_of(OTHER)) == []
