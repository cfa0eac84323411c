"""Artifacts in OCI registries: what is read, what is refused, and that no login goes where it does not belong."""

import asyncio
import gzip
import io
import logging
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from loopback.oci_registry import (
    INDEX,
    LOGINS_OF,
    PASSWORD,
    TAR,
    TITLE,
    TOKEN,
    Registry,
    a_registry,
    digest_of,
    tar_of,
)
from loopback.scripted_server import Answering, a_scripted_server

from understudy.adapters.artifacts.artifact_tree import ArtifactTree
from understudy.adapters.artifacts.bounded_thread import GivenUp
from understudy.adapters.artifacts.folder_origin import FolderOrigin
from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.artifacts.oci_origin import OciOrigin
from understudy.adapters.artifacts.oci_registry import OciAccess
from understudy.adapters.artifacts.origin import Limits
from understudy.adapters.artifacts.pin import pin_artifact
from understudy.adapters.artifacts.tar_layer import unpack
from understudy.core.loading.image_tag import VERSION
from understudy.core.loading.oci_address import parse_logins
from understudy.errors import ArtifactDiffers, ArtifactForbidden, ArtifactNotTaken, ArtifactUnreachable, UnderstudyError

WEIGHTS = b"weights" * 30_000
FILES = {"model.onnx": WEIGHTS, "1/labels.txt": b"yes\nno\n"}


def access_to(registry: Registry, *, with_login: bool = True, seconds: float = 10.0) -> OciAccess:
    logins = parse_logins(LOGINS_OF.format(registry.name)) if with_login else {}
    return OciAccess(logins, frozenset(), request_seconds=seconds, first_pause_seconds=0.01)


class World:
    """A registry and a stage."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self.registry = registry
        self.folder = folder

    def uri(self, reference: str) -> str:
        """Return the address of a tag, or of a digest."""
        mark = "@" if reference.startswith("sha256:") else ":"
        return f"oci://{self.registry.name}/models/visits{mark}{reference}"

    async def fetch(
        self, reference: str, limits: Limits | None = None, access: OciAccess | None = None
    ) -> tuple[str, dict[str, bytes]]:
        """Fetch an artifact, and return its digest and files."""
        origin = OciOrigin(access or access_to(self.registry))
        stage = FolderStage(self.folder / "stage", {"oci": origin}, limits)
        staged = await stage.fetch(self.uri(reference), None)
        assert await stage.verified(staged.digest) == staged.folder
        files = (path for path in staged.folder.rglob("*") if path.is_file())
        return staged.digest, {path.relative_to(staged.folder).as_posix(): path.read_bytes() for path in files}

    async def refused(self, reference: str, error: type[UnderstudyError], said: str, **options: Any) -> UnderstudyError:
        """Expect that an artifact is refused, and that nothing of it stays, on the stage or beside it."""
        before = sorted(path for path in self.folder.rglob("*") if "stage" not in path.parts)
        with pytest.raises(error, match=said) as problem:
            await self.fetch(reference, **options)
        assert [path for path in (self.folder / "stage").rglob("*") if path.is_file()] == []
        assert sorted(path for path in self.folder.rglob("*") if "stage" not in path.parts) == before
        return problem.value


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_registry() as registry:
        yield World(registry, tmp_path)


async def test_files_with_titles_are_staged_as_the_folder_of_the_same_files_and_have_its_digest(world, tmp_path):
    for name, content in FILES.items():
        (tmp_path / "artifacts/7" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "artifacts/7" / name).write_bytes(content)
    folder = await FolderStage(tmp_path / "other", {"": FolderOrigin(tmp_path / "artifacts")}).fetch("7", None)
    digest = world.registry.push("7", [world.registry.file(name, content) for name, content in FILES.items()])

    by_tag, by_digest = await world.fetch("7"), await world.fetch(digest)

    assert by_tag == by_digest == (folder.digest, FILES)


@pytest.mark.parametrize("gzipped", [False, True])
async def test_layers_of_an_image_are_unpacked_one_over_the_other(world, gzipped):
    kind = TAR + ("+gzip" if gzipped else "")
    below = tar_of(("model.onnx", b"old"), ("./1/labels.txt", FILES["1/labels.txt"]), gzipped=gzipped)
    above = tar_of(("model.onnx", WEIGHTS), gzipped=gzipped)
    world.registry.push("7", [world.registry.layer(below, kind), world.registry.layer(above, kind)])

    assert (await world.fetch("7"))[1] == FILES


async def test_a_folder_of_oras_is_unpacked_and_a_tar_with_a_title_alone_is_a_file(world):
    folder = tar_of(*((f"visits/{name}", content) for name, content in FILES.items()), gzipped=True)
    unpacked = {TITLE: "visits", "io.deis.oras.content.unpack": "true"}
    packed = tar_of(("a", b"a"))
    world.registry.push(
        "7", [world.registry.layer(folder, f"{TAR}+gzip", **unpacked), world.registry.file("m.tar", packed)]
    )

    _, files = await world.fetch("7")

    assert files == {"m.tar": packed, **{f"visits/{name}": content for name, content in FILES.items()}}


async def test_a_tag_is_pinned_to_the_manifest_that_it_names_and_stays_that_when_it_moves(world):
    said = {VERSION: "2026.11", "no text": 7}
    first = world.registry.push("canary", [world.registry.file("model.onnx", WEIGHTS)], annotations=said)
    origins = {"oci": OciOrigin(access_to(world.registry))}

    pinned = await pin_artifact(world.uri("canary"), None, origins, Limits())
    world.registry.push("canary", [world.registry.file("model.onnx", b"other")])

    assert pinned == (f"oci://{world.registry.name}/models/visits:canary@{first}", None, {VERSION: "2026.11"})
    assert (await world.fetch(f"canary@{first}"))[1] == {"model.onnx": WEIGHTS}
    assert (await world.fetch("canary"))[1] == {"model.onnx": b"other"}


async def test_of_a_list_the_one_manifest_besides_attestations_is_taken_and_of_several_none(world):
    manifest = world.registry.push("inner", [world.registry.file("model.onnx", WEIGHTS)])
    entry = {"mediaType": "m", "digest": manifest, "size": 1}
    other = {"mediaType": "m", "digest": "sha256:" + "1" * 64, "size": 1}
    attested = {**other, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    world.registry.push_document("one", {"schemaVersion": 2, "mediaType": INDEX, "manifests": [attested, entry]})
    world.registry.push_document("two", {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry, other]})

    await world.refused("two", ArtifactNotTaken, f"is a list of 2 manifests: register one .* {manifest}, sha256:1")
    assert (await world.fetch("one"))[1] == {"model.onnx": WEIGHTS}


# -- logins -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["basic", "token"])
async def test_a_registry_gets_its_login_and_is_refused_without_one(tmp_path, login, caplog):
    caplog.set_level(logging.DEBUG)
    with a_registry(login) as registry:
        world = World(registry, tmp_path)
        registry.push("7", [registry.file("model.onnx", WEIGHTS)])

        problem = await world.refused(
            "7",
            ArtifactForbidden,
            "without a login: 401|gives none for models/visits: it answers 401",
            access=access_to(registry, with_login=False),
        )
        _, files = await world.fetch("7")

    assert files == {"model.onnx": WEIGHTS}
    for text in (str(problem), caplog.text):
        assert PASSWORD not in text
        assert TOKEN not in text


async def test_no_login_follows_a_redirect_to_another_server_and_a_signed_address_is_not_repeated(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    with a_registry("token") as registry, a_scripted_server(lambda answering: answering.send(200, WEIGHTS)) as store:
        world = World(registry, tmp_path)
        layer = registry.file("model.onnx", WEIGHTS)
        registry.push("7", [layer])
        away = {"location": f"{store.url}/blob?X-Amz-Signature=secret-signature"}
        registry.faults[layer["digest"]] = [lambda answering, _: answering.send(307, headers=away)]

        _, files = await world.fetch("7")

    assert files == {"model.onnx": WEIGHTS}
    assert [asked.headers.get("authorization") for asked in store.requests] == [None]
    assert "secret-signature" not in caplog.text


async def test_a_registry_without_tls_that_is_not_permitted_is_not_asked_in_the_clear(tmp_path):
    def answer(answering: Answering) -> None:
        answering.send(200, b"{}")

    with a_scripted_server(answer) as server:
        origin = OciOrigin(OciAccess({}, frozenset(), request_seconds=2.0, first_pause_seconds=0.0))
        stage = FolderStage(tmp_path / "stage", {"oci": origin})
        with pytest.raises(ArtifactUnreachable):
            await stage.fetch(f"oci://0.0.0.0:{server.port}/models/visits:7", None)

    assert server.requests == []


@pytest.mark.parametrize("target", ["http://10.0.0.1/token", "ftp://x/token", ""])
async def test_a_token_server_without_tls_gets_no_login(world, target):
    challenge = {"www-authenticate": f'Bearer realm="{target}",service="s"'}
    world.registry.push("7", [])
    world.registry.faults["manifests/7"] = [lambda answering, _: answering.send(401, headers=challenge)]

    await world.refused("7", ArtifactForbidden, "names a token server without TLS, which gets no login")


async def test_no_other_server_without_tls_and_no_proxy_gets_a_login(tmp_path, monkeypatch):
    with a_registry("basic") as registry, a_scripted_server(lambda answering: answering.send(502)) as other:
        monkeypatch.setenv("HTTP_PROXY", other.url)
        world = World(registry, tmp_path)
        registry.push("7", [registry.file("model.onnx", WEIGHTS)])
        assert (await world.fetch("7"))[1] == {"model.onnx": WEIGHTS}

        challenge = {"www-authenticate": f'Bearer realm="{other.url}/token",service="s"'}
        registry.login = "none"
        registry.faults["manifests/7"] = [lambda answering, _: answering.send(401, headers=challenge)]
        with pytest.raises(ArtifactForbidden, match="names a token server without TLS, which gets no login"):
            await world.fetch("7")

    assert other.requests == []


async def test_addresses_that_are_none_are_said_to_be_so(world):
    world.registry.push("7", [])
    challenge = {"www-authenticate": 'Bearer realm="https://\x7f/"'}
    world.registry.faults["manifests/7"] = [lambda answering, _: answering.send(401, headers=challenge)]

    await world.refused("7", ArtifactUnreachable, "names an address that is none")
    stage = FolderStage(world.folder / "stage", {"oci": OciOrigin(access_to(world.registry))})
    with pytest.raises(ArtifactUnreachable, match="is no host that a registry can have"):
        await stage.fetch("oci://[::::]/x:1", None)


# -- what goes wrong on the way ---------------------------------------------------------------------------------------


async def test_a_body_that_breaks_off_goes_on_where_it_broke_even_where_the_registry_begins_anew(world):
    layer = world.registry.file("model.onnx", WEIGHTS)
    world.registry.push("7", [layer])
    world.registry.faults[layer["digest"]] = [
        lambda answering, content: answering.send(200, content, cut=len(content) // 2),
        lambda answering, content: answering.send(200, content, cut=10),
    ]

    assert (await world.fetch("7"))[1] == {"model.onnx": WEIGHTS}
    ranges = [asked.headers.get("range") for asked in world.registry.server.requests if "blobs" in asked.path]
    assert ranges[0] is None
    assert all(ranges[1:])
    assert len(ranges) == 3


async def test_a_registry_that_is_overloaded_is_asked_again_when_it_says(world):
    layer = world.registry.file("model.onnx", WEIGHTS)
    world.registry.push("7", [layer])
    world.registry.faults["manifests/7"] = [
        lambda answering, _: answering.send(429, headers={"retry-after": "0"}),
        lambda answering, _: answering.send(500),
    ]

    assert (await world.fetch("7"))[1] == {"model.onnx": WEIGHTS}


@pytest.mark.parametrize(
    ("answers", "error", "said"),
    [
        ([(429, "3600")], ArtifactUnreachable, "answers 429"),
        ([(503, "")] * 9, ArtifactUnreachable, "answers 503"),
        ([(403, "")], ArtifactForbidden, "does not let models/visits be read with the login that it is shown: 403"),
        ([(404, "")], ArtifactUnreachable, "it has none"),
        ([(302, "")], ArtifactUnreachable, "it answers 302"),
    ],
)
async def test_what_a_registry_refuses_is_said(world, answers, error, said):
    layer = world.registry.file("model.onnx", WEIGHTS)
    world.registry.push("7", [layer])

    def refuse(status: int, retry_after: str) -> Callable[[Answering, bytes], object]:
        return lambda answering, _: answering.send(status, headers={"retry-after": retry_after} if retry_after else {})

    world.registry.faults[layer["digest"]] = [refuse(*answer) for answer in answers]

    await world.refused("7", error, said)


async def test_a_redirect_in_a_circle_ends(world):
    here = {"location": "/v2/models/visits/manifests/7"}
    world.registry.faults["manifests/7"] = [lambda answering, _: answering.send(307, headers=here)] * 20

    await world.refused("7", ArtifactUnreachable, "redirects more than 5 times")


async def test_another_content_than_a_digest_names_is_refused(world):
    layer = world.registry.file("model.onnx", WEIGHTS)
    digest = world.registry.push("7", [layer])
    world.registry.manifests[digest] = world.registry.manifests["7"][0], b'{"schemaVersion": 2, "layers": []}'
    await world.refused(digest, ArtifactDiffers, f"the registry gives a manifest that is sha256:.*, not {digest}")

    world.registry.blobs[layer["digest"]] = WEIGHTS[:-1] + b"!"
    await world.refused("7", ArtifactDiffers, f"gives a blob that is sha256:.*, not {layer['digest']}")

    world.registry.blobs[layer["digest"]] = WEIGHTS[:-1]
    await world.refused("7", ArtifactUnreachable, r"ends after 209,999 of 210,000 bytes")


async def test_bodies_without_an_end_are_cut_off(world):
    layer = world.registry.file("model.onnx", WEIGHTS)
    world.registry.push("7", [layer])
    sent: list[int] = []

    def pour(answering: Answering, _: bytes) -> None:
        sent.append(answering.pour(200, b"w" * 65_536))

    world.registry.faults[layer["digest"]] = [pour]
    await world.refused("7", ArtifactDiffers, r"sends more than 210,000 bytes")
    world.registry.faults["manifests/7"] = [pour]
    await world.refused("7", ArtifactNotTaken, r"a manifest of more than 4,194,304 bytes")


async def test_a_registry_that_hangs_ends_with_the_deadline_of_the_artifact(world):
    world.registry.faults["manifests/7"] = [lambda answering, _: answering.hang()]

    await world.refused(
        "7",
        ArtifactUnreachable,
        r"it takes longer than 0\.3 s",
        limits=Limits(seconds=0.3),
        access=access_to(world.registry, seconds=0.5),
    )
    for thread in threading.enumerate():
        if thread.name == "artifact":
            thread.join(10)


# -- what an author may have put in -----------------------------------------------------------------------------------


def an_entry(name: str, kind: bytes, **fields: Any) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = kind
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry


@pytest.mark.parametrize(
    "entry",
    [
        ("../escaped", b"x"),
        ("/tmp/escaped", b"x"),
        ("a/../../escaped", b"x"),
        ("1/.wh.labels.txt", b""),
        an_entry("link", tarfile.SYMTYPE, linkname="/etc/passwd"),
        an_entry("within", tarfile.SYMTYPE, linkname="model.onnx"),
        an_entry("hard", tarfile.LNKTYPE, linkname="model.onnx"),
        an_entry("device", tarfile.CHRTYPE),
        an_entry("pipe", tarfile.FIFOTYPE),
        an_entry("sparse", tarfile.GNUTYPE_SPARSE),
        an_entry("../folder", tarfile.DIRTYPE),
    ],
    ids=lambda entry: entry.name if isinstance(entry, tarfile.TarInfo) else entry[0],
)
async def test_a_tar_with_an_entry_that_is_no_plain_file_within_the_artifact_is_refused(world, entry):
    for gzipped in (False, True):
        layer = tar_of(("model.onnx", WEIGHTS), entry, gzipped=gzipped)
        world.registry.push("7", [world.registry.layer(layer, TAR + ("+gzip" if gzipped else ""))])

        said = "holds .*(absolute|goes up|neither a folder nor a plain file)"
        problem = await world.refused("7", ArtifactNotTaken, said)

        assert problem.code == "E219"


@pytest.mark.parametrize("title", ["../escaped", "/escaped", "a/../../escaped", "", ".", "nul\0"])
async def test_a_title_that_leads_out_of_the_artifact_is_refused(world, title):
    world.registry.push("7", [world.registry.file("model.onnx", WEIGHTS), world.registry.file(title, b"x")])

    await world.refused("7", ArtifactNotTaken, "holds")


async def test_a_file_in_the_place_of_a_folder_is_refused(world):
    for first, second in (("a", "a/b"), ("a/b", "a")):
        world.registry.push("7", [world.registry.file(first, b"1"), world.registry.file(second, b"2")])
        await world.refused("7", ArtifactNotTaken, "as a file and as a folder")


async def test_a_bomb_is_refused_at_the_bound_of_bytes_and_one_of_entries_at_theirs(world):
    bomb = tar_of(("zeros", bytes(2_000_000)), gzipped=True)
    folders = tar_of(*(an_entry(f"d{number}", tarfile.DIRTYPE) for number in range(60)), gzipped=True)
    grown = gzip.compress(bytes(2_000_000))
    world.registry.push("bomb", [world.registry.layer(bomb, f"{TAR}+gzip")])
    world.registry.push("folders", [world.registry.layer(folders, f"{TAR}+gzip")])
    world.registry.push("zeros", [world.registry.layer(grown, f"{TAR}+gzip")])
    assert len(bomb) < 10_000

    await world.refused("bomb", ArtifactUnreachable, "more than 1,000,000 bytes", limits=Limits(most_bytes=1_000_000))
    await world.refused("folders", ArtifactUnreachable, "more than 50 files", limits=Limits(most_files=50))
    await world.refused("zeros", UnderstudyError, "no whole tar|holds no file")


async def test_a_size_beyond_the_bound_is_refused_before_a_blob_is_read(world):
    layer = {**world.registry.file("model.onnx", WEIGHTS), "size": 10**15}
    world.registry.push("7", [layer])

    await world.refused("7", ArtifactUnreachable, "has more than")

    assert [asked.path for asked in world.registry.server.requests if "blobs" in asked.path] == []


def long_header() -> bytes:
    """A header for which a reader that believes it would reserve a gigabyte."""
    made = io.BytesIO()
    header = an_entry("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=2**30)
    made.write(header.tobuf(tarfile.GNU_FORMAT))
    made.write(bytes(1_000_000))
    return gzip.compress(made.getvalue())


def nested_headers() -> bytes:
    made = io.BytesIO()
    for _ in range(200_000 // 1_024 * 2):
        made.write(an_entry("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=2).tobuf(tarfile.GNU_FORMAT))
        made.write(b"a\0".ljust(512, b"\0"))
    return gzip.compress(made.getvalue())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"no tar"), "no whole tar"),
        (b"no gzip", "no whole tar"),
        (tar_of(("a", WEIGHTS), gzipped=True)[:-9_00], "no whole tar"),
        (gzip.compress(tar_of(("a", WEIGHTS))[:-20_000]), "no whole tar: unexpected end of data"),
        (long_header(), "a header that is too long"),
        (nested_headers(), "nested|too long"),
        (b"", "no whole tar"),
    ],
    ids=["no tar", "no gzip", "cut gzip", "cut tar", "long header", "nested headers", "empty"],
)
async def test_a_layer_that_is_no_whole_tar_is_refused(world, content, said):
    world.registry.push("7", [world.registry.layer(content, f"{TAR}+gzip")])

    await world.refused("7", ArtifactNotTaken, said)


def pax_of_digits(size: int) -> bytes:
    """A header for which the library's search takes a time that grows with the square of its size."""
    header = an_entry("././@PaxHeader", tarfile.XHDTYPE, size=size).tobuf(tarfile.USTAR_FORMAT)
    return header + (b"1" * size).ljust(-(-size // 512) * 512, b"\0") + an_entry("a", tarfile.REGTYPE).tobuf()


async def test_headers_of_digits_do_not_stop_the_process_that_unpacks_them(world):
    layer = gzip.compress(pax_of_digits(250_000) + bytes(1_024))
    world.registry.push("7", [world.registry.layer(layer, f"{TAR}+gzip")])
    assert len(layer) < 400
    done, longest = asyncio.Event(), 0.0

    async def beat() -> None:
        nonlocal longest
        while not done.is_set():
            began_at = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - began_at)

    beating = asyncio.create_task(beat())
    await world.refused("7", ArtifactNotTaken, "a header that is too long")
    done.set()
    await beating

    assert longest < 2.0


async def test_headers_count_as_bytes(world):
    entry = an_entry("././@PaxHeader", tarfile.XHDTYPE, size=9).tobuf(tarfile.USTAR_FORMAT)
    many = entry + b"9 a=bcde\n".ljust(512, b"\0") + an_entry("a", tarfile.REGTYPE).tobuf()
    world.registry.push("7", [world.registry.layer(gzip.compress(many * 40 + bytes(1_024)), f"{TAR}+gzip")])

    await world.refused("7", ArtifactUnreachable, "more than 50,000 bytes", limits=Limits(most_bytes=50_000))
    assert (await world.fetch("7"))[1] == {"a": b""}


@pytest.mark.parametrize("after", [bytes(60_000_000), gzip.compress(b"") * 1_000_000], ids=["zeros", "empty members"])
def test_gzip_that_gives_nothing_is_read_no_more_once_the_result_is_not_wanted(tmp_path, after):
    given_up = Event()

    class GivenUpMeanwhile(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 1_000:
                given_up.set()
            return super().read(size)

    header = an_entry("a", tarfile.REGTYPE, size=10_000_000).tobuf()
    layer = GivenUpMeanwhile(gzip.compress(header + b"x") + after)
    tree = ArtifactTree("oci://r/n:t", tmp_path, given_up, most_bytes=10**9, most_files=10)

    with pytest.raises(GivenUp):
        unpack(layer, tree, "oci://r/n:t", is_gzip=True)

    assert layer.tell() < 1_000_000


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "unknown kind"),
        ({"schemaVersion": 1, "fsLayers": []}, "unknown kind"),
        ({"schemaVersion": 2, "layers": [], "manifests": []}, "cannot be read"),
        ({"schemaVersion": 2, "layers": [], "mediaType": "x/y"}, "media type 'x/y'"),
        ({"schemaVersion": 2}, "without layers"),
        ({"schemaVersion": 2, "layers": [{"mediaType": "x/y", "digest": "sha256:" + "0" * 64, "size": 1}]}, "'x/y'"),
        ({"schemaVersion": 2, "layers": [{"mediaType": TAR, "digest": "sha512:00", "size": 1}]}, "without a SHA-256"),
        ({"schemaVersion": 2, "layers": [{"mediaType": TAR, "digest": "sha256:" + "0" * 64, "size": -1}]}, "a size"),
        ({"schemaVersion": 2, "layers": [1] * 1_001}, "more than 1,000"),
        ({"schemaVersion": 2, "manifests": [{"digest": "../x"}]}, "cannot be read"),
        ({"schemaVersion": 2, "manifests": []}, "a list of 0 manifests"),
    ],
)
async def test_a_manifest_of_another_kind_is_refused(world, document, said):
    world.registry.push_document("7", document)

    await world.refused("7", ArtifactNotTaken, said)


async def test_what_is_not_json_and_what_has_no_layers_with_files_is_refused(world):
    world.registry.manifests["7"] = "x", b"<html>"
    await world.refused("7", ArtifactNotTaken, "not JSON")

    world.registry.push("7", [world.registry.layer(b"{}", "application/vnd.oci.empty.v1+json")])
    await world.refused("7", ArtifactUnreachable, "holds no file")


async def test_blobs_are_asked_of_the_registry_whatever_other_addresses_a_manifest_names(world):
    layer = world.registry.file("model.onnx", WEIGHTS)
    world.registry.push("7", [{**layer, "urls": ["http://127.0.0.1:1/elsewhere"]}])

    assert (await world.fetch("7"))[1] == {"model.onnx": WEIGHTS}
    assert digest_of(WEIGHTS) == layer["digest"]
