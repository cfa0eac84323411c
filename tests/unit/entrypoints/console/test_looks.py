"""Static files are what they were vendored as, templates have nothing that the content security policy would refuse."""

import re
from hashlib import sha256
from pathlib import Path

import pytest
from jinja2 import FileSystemLoader, UndefinedError

from understudy.entrypoints import console
from understudy.entrypoints.console.looks import RUNBOOK_OF_PAGES, Templates, read_static, unbroken
from understudy.entrypoints.console.views.health import RUNBOOK_OF_FINDINGS

HERE = Path(console.__file__).parent
TEMPLATES = sorted((HERE / "templates").glob("*.html"))
PLAIN_ATTRIBUTES = {"hx-get", "hx-trigger", "hx-swap", "hx-target", "hx-include"}
"""Of htmx; none of them holds script."""
TEXT, LARGE = 4.5, 3.0
"""Contrast. Source: WCAG 2.2, 1.4.3 and 1.4.11."""


def test_htmx_is_the_file_that_was_vendored():
    name, digest = re.findall(r"sha256 ([0-9a-f]{64})  (\S+)", (HERE / "static/VENDORED").read_text())[0][::-1]

    assert sha256((HERE / "static" / name).read_bytes()).hexdigest() == digest
    assert "Zero-Clause BSD" in (HERE / "static/htmx.LICENSE").read_text()


def test_a_static_file_has_the_digest_of_its_content_in_its_address():
    files = read_static()

    assert {"console.css", "console.js", "htmx.min.js", "icon.svg"} == set(files)
    for name, file in files.items():
        assert file.address == f"/static/{sha256(file.content).hexdigest()[:12]}/{name}"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_inline_script_or_style_and_no_address_of_another_host(path):
    text = path.read_text()

    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|hx-on|https?://", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    assert set(re.findall(r"\s(hx-[a-z-]+)=", text)) <= PLAIN_ATTRIBUTES
    assert set(re.findall(r"\{\{ ([^}]*)\|safe \}\}", text)) <= {
        "live.html",
        "drawn.html",
        "story.html",
        "trouble.html",
        "chart",
    }


def test_values_are_escaped_and_a_name_that_is_not_there_is_an_error():
    templates = Templates(read_static())
    values = {"visitor": None, "token": "", "once": "", "next": '"><script>', "problem": "<b>"}

    page = templates.render("login.html", values)
    with pytest.raises(UndefinedError):
        templates.render("login.html", {"visitor": None})

    assert "<script>" not in page.replace("<script src", "")
    assert "&lt;b&gt;" in page


def test_characters_that_turn_or_hide_what_stands_beside_are_marked():
    values = {"visitor": None, "token": "", "once": "", "next": "/", "problem": "a\u202eb\x07c\u200bd\n"}

    assert "a\ufffdb\ufffdc\ufffdd\n" in Templates(read_static()).render("login.html", values)


RUNBOOKS = HERE.parents[3] / "docs/runbooks"


def test_each_page_leads_to_a_runbook_that_is_there_where_they_are_published():
    values = {"visitor": None, "token": "", "once": "", "next": "/", "problem": ""}
    published = Templates(read_static(), "https://docs.shop.example/runbooks/")
    named = {*RUNBOOK_OF_PAGES.values(), *RUNBOOK_OF_FINDINGS.values()}

    assert 'href="https://docs.shop.example/runbooks/README.md" rel="noreferrer">Help</a>' in published.render(
        "login.html", values
    )
    assert "Help</a>" not in Templates(read_static()).render("login.html", values)
    assert {page.partition("#")[0] for page in named} <= {path.name for path in RUNBOOKS.glob("*.md")}
    assert {f"{page}.html" for page in RUNBOOK_OF_PAGES} <= {path.name for path in TEMPLATES}


def colours(css: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", css))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_texts_and_marks_have_contrast_in_both_modes():
    light, dark = (HERE / "static/console.css").read_text().split("@media (prefers-color-scheme: dark)")
    for mode in (colours(light), colours(dark.partition("* {")[0])):
        for paper in ("paper", "card"):
            assert all(contrast(mode[name], mode[paper]) >= TEXT for name in ("ink", "faint", "accent", "bad", "wait"))
            assert all(contrast(mode[name], mode[paper]) >= LARGE for name in ("champion", "challenger"))
        assert all(contrast(mode[name], mode[f"{name}-back"]) >= TEXT for name in ("good", "bad", "wait", "calm"))
    assert contrast("#ffffff", "#b3201b") >= TEXT


def test_a_line_ends_between_no_number_and_its_unit():
    shown = unbroken("2.77 % of 5 m 3 s, 10 ms; 3 months")

    assert shown.replace("\N{NO-BREAK SPACE}", "_") == "2.77_% of 5_m 3_s, 10_ms; 3 months"


def test_after_the_start_no_visitor_waits_for_a_template_to_be_compiled(monkeypatch):
    templates = Templates(read_static(), "https://runbooks.example/of-this-test")
    values = {"visitor": None, "token": "", "once": "", "next": "/", "problem": ""}

    templates.prepare()
    monkeypatch.delattr(FileSystemLoader, "get_source")

    assert "of-this-test" in templates.render("login.html", values)
