"""The site has every page of docs/, what they link to, and a navigation that leaves no page out."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.check_site import faults
from tools.make_site import ROOT, place_of, with_links, write

LISTED_BY_THEIR_README = ("adr", "runbooks")


@pytest.fixture
def repository(tmp_path):
    files = {
        "docs/README.md": "# Docs\n[how](how-to/call.md) and [load](../loadtests/README.md#run)",
        "docs/how-to/call.md": "# Call\n[script](../../deploy/run.sh), [top](../README.md), [web](https://example.com/a)",
        "loadtests/README.md": "# Load\n## Run\n[limits](slo.toml), [call](../docs/how-to/call.md)",
        "loadtests/slo.toml": "p99 = 50\n",
        "deploy/run.sh": "echo\n",
        "src/secret.py": "no page links here\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_pages_link_to_is_on_the_site_too(repository):
    places = write(repository / "build", repository)

    assert [place.as_posix() for place in places] == [
        "README.md",
        "how-to/call.md",
        "project/deploy/run.sh",
        "project/loadtests/README.md",
        "project/loadtests/slo.toml",
    ]
    assert {path.relative_to(repository / "build") for path in (repository / "build").rglob("*.*")} == set(places)


def test_links_lead_to_where_the_site_has_a_file(repository):
    write(repository / "build", repository)

    built = repository / "build"
    assert "[load](project/loadtests/README.md#run)" in (built / "README.md").read_text()
    assert "[script](../project/deploy/run.sh), [top](../README.md)" in (built / "how-to/call.md").read_text()
    assert "[call](../../how-to/call.md)" in (built / "project/loadtests/README.md").read_text()


@pytest.mark.parametrize(
    "text", ["`[a](../b.md)`", "```\n[a](../b.md)\n```", "[a](https://example.com/b.md)", "[a](#heading)"]
)
def test_code_addresses_and_headings_stay_as_they_are(text):
    assert with_links(Path("docs/how-to/x.md"), text) == text


def test_a_folder_is_its_readme():
    assert with_links(Path("docs/reference/settings.md"), "[why](../adr/)") == "[why](../adr/README.md)"


def test_the_navigation_has_every_page():
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    pages = {place_of(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    expected = {
        page.as_posix() for page in pages if page.parts[0] not in LISTED_BY_THEIR_README or page.stem == "README"
    }

    assert sorted(in_navigation(project["nav"])) == sorted(expected)


def in_navigation(item: Any) -> Iterator[str]:
    if isinstance(item, str):
        yield item
    else:
        for below in item.values() if isinstance(item, dict) else item:
            yield from in_navigation(below)


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ('<a href="b.html">b</a>', []),
        ('<a href="b.html#there">b</a><a href="https://example.com">web</a><a href="#own" id="own">here</a>', []),
        ('<a href="c.html">c</a>', ["a.html links to c.html: there is no such page"]),
        ('<a href="b.html#gone">b</a>', ["a.html links to b.html#gone: that page has no such heading"]),
        ('<a href="#gone">b</a>', ["a.html links to #gone: that page has no such heading"]),
        ('<script src="https://cdn.example.com/x.js">', ["a.html fetches https://cdn.example.com/x.js"]),
        ('<img src="none.png">', ["a.html links to none.png: there is no such page"]),
    ],
)
def test_a_built_site_is_told_what_it_lacks(tmp_path, html, said):
    (tmp_path / "a.html").write_text(html)
    (tmp_path / "b.html").write_text('<h2 id="there">There</h2>')

    assert faults(tmp_path) == said
