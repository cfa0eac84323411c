import base64
import hashlib
import re
from html import escape
from html.parser import HTMLParser

from understudy.entrypoints.proxy.api.docs_page import docs_page

PAGE_LIMIT_BYTES = 400_000


class Seen(HTMLParser):
    """Every element with its attributes, and whether each was closed."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


async def test_the_page_names_every_operation_and_needs_nothing_from_elsewhere(start):
    proxy = await start()

    answer = await proxy.client.get("/docs")
    document = (await proxy.client.get("/openapi.json")).json()

    page = answer.text
    seen = Seen()
    seen.feed(page)
    assert answer.status_code == 200
    assert seen.open == []
    assert {tag for tag, _ in seen.elements} & {"script", "link", "img", "iframe", "object", "form"} == set()
    assert {value for _, names in seen.elements for name, value in names.items() if name in ("href", "src")} == {
        "openapi.json"
    }
    assert len(page) < PAGE_LIMIT_BYTES
    for path, item in document["paths"].items():
        assert f"<code>{path}</code>" in page
        assert all(escape(operation["summary"]) in page for operation in item.values())


async def test_the_pages_policy_permits_its_own_style_sheet_and_nothing_else(start):
    proxy = await start()

    answer = await proxy.client.get("/docs")

    found = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert found is not None
    digest = base64.b64encode(hashlib.sha256(found.group(1).encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert f"style-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_head_has_the_pages_headers_and_no_body(start):
    proxy = await start()

    answer = await proxy.client.head("/docs")

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/html")


async def test_there_is_no_page_where_it_is_not_wanted(start):
    proxy = await start(docs=False)

    assert (await proxy.client.get("/docs")).status_code == 404


def test_what_a_description_says_is_text_and_never_markup():
    hostile = "<script>alert(1)</script>"
    operation = {
        "summary": hostile,
        "description": hostile,
        "parameters": [{"name": hostile, "in": "query", "description": hostile, "schema": {"default": hostile}}],
        "requestBody": {"content": {hostile: {"schema": {"examples": [hostile], "title": hostile}}}},
        "responses": {"200": {"description": hostile, "content": {"application/json": {"schema": {"x": hostile}}}}},
        "tags": [hostile],
        "operationId": hostile,
    }

    page = docs_page({"info": {"title": hostile, "version": "1"}, "paths": {f"/{hostile}": {"get": operation}}})

    assert b"<script" not in page
