"""What is installed is what is pinned, and nothing runs at Python's start that was not decided."""

import json
import re
import subprocess
import sys
import sysconfig
from hashlib import sha256
from pathlib import Path

import pytest

from tools.make_sbom import make_sbom, read_pins, read_vendored

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
LISTED = ["run.txt", "demo.txt", "dev.txt"]
STARTING = {
    "_editable_impl_understudy_serving.pth": r"/.*/src\n?",
    # Of setuptools, which pip brings with each virtual environment on Python 3.11.
    "distutils-precedence.pth": r"import os; var = 'SETUPTOOLS_USE_DISTUTILS'; .*_distutils_hack.*\.add_shim\(\); ?\n?",
}
"""Files that Python reads when it starts (a line that begins with import is run), with what may be in them."""


def unexpected_in(folder: Path) -> list[str]:
    return [
        path.name
        for path in sorted(folder.glob("*.pth"))
        if not re.fullmatch(STARTING.get(path.name, "(?!)"), path.read_text(encoding="utf-8"))
    ]


def test_no_file_runs_at_pythons_start_that_was_not_decided():
    assert unexpected_in(Path(sysconfig.get_path("purelib"))) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [("helper.pth", "import helper"), ("_editable_impl_understudy_serving.pth", "import os; os.system('true')")],
)
def test_a_planted_file_that_runs_at_pythons_start_is_found(tmp_path, name, text):
    (tmp_path / name).write_text(text)

    assert unexpected_in(tmp_path) == [name]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_requirement_is_pinned_with_a_hash_and_from_no_place_of_its_own(path):
    text = path.read_text(encoding="utf-8")

    assert len(read_pins(text)) == len(re.findall(r"^[A-Za-z0-9]", text, re.MULTILINE)) > 0
    assert re.findall(r"^\s*--(?!hash=sha256:)|https?://|git\+|^-e", text, re.MULTILINE) == []


@pytest.mark.parametrize("line", ["numpy", "numpy==2.0", "numpy>=2 --hash=sha256:" + "0" * 64, "numpy==2 --hash=md5:0"])
def test_a_requirement_without_a_pin_or_a_hash_is_refused(line):
    with pytest.raises(ValueError, match="no pin with a hash"):
        read_pins(line)


@pytest.fixture(scope="module")
def made() -> subprocess.CompletedProcess[str]:
    """What ``make sbom`` runs."""
    return subprocess.run(
        [sys.executable, "tools/make_sbom.py", *(f"requirements/{name}" for name in LISTED)],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip


def test_the_bill_of_materials_is_cyclonedx_and_names_every_pin_with_its_hashes(made):
    sbom = json.loads(made.stdout)
    pins = {pin for name in LISTED for pin in read_pins((ROOT / "requirements" / name).read_text(encoding="utf-8"))}

    assert (sbom["bomFormat"], sbom["specVersion"], sbom["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", sbom["serialNumber"])
    assert sbom["metadata"]["component"]["name"] == "understudy-serving"
    references = [component["bom-ref"] for component in sbom["components"]]
    assert len(set(references)) == len(references)
    components = [one for one in sbom["components"] if one["purl"].startswith("pkg:pypi/")]
    assert {
        (one["name"], one["version"], tuple(sorted({entry["content"] for entry in one["hashes"]})))
        for one in components
    } == {(pin.name, pin.version, tuple(sorted(set(pin.digests)))) for pin in pins}
    for one in components:
        assert set(one) <= {"type", "bom-ref", "name", "version", "purl", "scope", "hashes", "licenses"}
        assert one["type"] == "library"
        assert one["scope"] in {"required", "optional"}
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert all(
            re.fullmatch("[0-9a-f]{64}", entry["content"]) and entry["alg"] == "SHA-256" for entry in one["hashes"]
        )
        licences = one.get("licenses", [])
        assert all(set(entry) in ({"expression"}, {"license"}) for entry in licences)
        assert len(licences) == 1 or not any("expression" in entry for entry in licences)


def test_the_bill_of_materials_names_what_browsers_load_with_the_digest_of_its_file_and_its_licence(made):
    vendored = [one for one in json.loads(made.stdout)["components"] if not one["purl"].startswith("pkg:pypi/")]
    file = ROOT / "src/understudy/entrypoints/console/static/htmx.min.js"

    assert [(one["purl"], one["scope"], one["licenses"]) for one in vendored] == [
        ("pkg:npm/htmx.org@4.0.1", "required", [{"expression": "0BSD"}])
    ]
    assert vendored[0]["hashes"] == [{"alg": "SHA-256", "content": sha256(file.read_bytes()).hexdigest()}]
    with pytest.raises(ValueError, match="no list of vendored parts"):
        read_vendored("something else\n")


def test_what_runs_in_production_is_required_and_the_rest_optional(made):
    scopes = {one["name"]: one["scope"] for one in json.loads(made.stdout)["components"]}

    assert (scopes["asyncpg"], scopes["pytest"]) == ("required", "optional")


def test_packages_without_a_known_licence_are_counted_and_named(made):
    components = json.loads(made.stdout)["components"]
    unknown = [one["name"] for one in components if "licenses" not in one]

    assert made.stderr.startswith(f"{len(components)} packages, {len(unknown)} without a known licence")
    assert all(name in made.stderr for name in unknown)
    assert len(unknown) < len(components) / 5


def test_the_same_pins_give_the_same_document():
    pins = read_pins((ROOT / "requirements" / "run.txt").read_text(encoding="utf-8"))

    assert make_sbom("understudy", "1", [pins]) == make_sbom("understudy", "1", [pins, pins])
    assert make_sbom("understudy", "2", [pins])["serialNumber"] != make_sbom("understudy", "1", [pins])["serialNumber"]
