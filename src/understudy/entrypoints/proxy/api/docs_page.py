"""``GET /docs``: the OpenAPI document as one self-contained page.

It has no script and loads nothing: it works without the internet, and its content security policy keeps a browser from
running anything on it. The usual OpenAPI viewers load hundreds of kilobytes of script from a CDN.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from typing import Any

import orjson

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --quiet: #777 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { background: var(--soft); padding: .7rem; overflow-x: auto; border-radius: 4px }
details { border: 1px solid var(--line); border-radius: 4px; margin: .4rem 0 }
summary { cursor: pointer; padding: .4rem .7rem }
details > div { padding: 0 .7rem .5rem }
.method { display: inline-block; min-width: 3.6rem; font-weight: 600 }
.quiet { color: var(--quiet) }
table { border-collapse: collapse } td, th { text-align: left; vertical-align: top; padding: .15rem .9rem .15rem 0 }
"""
_METHODS = ("get", "post", "put", "patch", "delete")
HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'sha256-%b'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        % base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
"""The page's headers: the policy permits its one style sheet, by hash, and nothing else."""


def docs_page(document: Mapping[str, Any]) -> bytes:
    """Return the page of an OpenAPI document."""
    about = document["info"]
    title = f"{about['title']} {about['version']}"
    operations = sorted(_operations(document), key=lambda found: found[0])
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width">',
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1><p>{escape(about.get('summary', ''))}</p>",
        '<p class="quiet">For programs: <a href="openapi.json">openapi.json</a>. Send a key as <code>authorization: ',
        "Bearer &lt;id&gt;.&lt;secret&gt;</code>.</p>",
    ]
    for tag, found in groupby(operations, key=lambda found: found[0]):
        parts.append(f"<h2>{escape(tag)}</h2>")
        parts += [_operation(method, path, operation) for _, path, method, operation in found]
    parts.append("</body></html>\n")
    return "".join(parts).encode()


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield (*item[method].get("tags", ["other"])[:1], path, method, item[method])


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    anchor = re.sub(r"\W", "-", operation.get("operationId", path))
    parts = [
        f'<details id="{escape(anchor)}"><summary><span class="method">{method.upper()}</span> ',
        f'<code>{escape(path)}</code> <span class="quiet">{escape(operation.get("summary", ""))}</span></summary><div>',
    ]
    if operation.get("description"):
        parts.append(f"<p>{escape(operation['description'])}</p>")
    if operation.get("parameters"):
        parts.append("<h4>Parameters</h4>" + _parameters(operation["parameters"]))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<h4>Body <code>{escape(kind)}</code></h4>" + _content(content))
    parts.append("<h4>Answers</h4>")
    parts += [_answer(status, answer) for status, answer in operation["responses"].items()]
    return "".join([*parts, "</div></details>"])


def _parameters(parameters: list[Mapping[str, Any]]) -> str:
    rows = []
    for one in parameters:
        schema = {name: value for name, value in one.get("schema", {}).items() if name != "title"}
        needed = "required" if one.get("required") else ""
        rows.append(
            f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}</td><td>{needed}</td>"
            f"<td><code>{escape(_json(schema))}</code></td><td>{escape(one.get('description', ''))}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"


def _answer(status: str, answer: Mapping[str, Any]) -> str:
    said = f'<span class="method">{escape(status)}</span> {escape(answer.get("description", ""))}'
    # A problem has the same schema everywhere.
    contents = {kind: content for kind, content in answer.get("content", {}).items() if "problem" not in kind}
    if not contents:
        return f"<p>{said}</p>"
    shown = "".join(_content(content) for content in contents.values())
    return f"<details><summary>{said}</summary><div>{shown}</div></details>"


def _content(content: Mapping[str, Any]) -> str:
    schema = content.get("schema", {})
    examples = "".join(f"<pre>{escape(_json(example, indent=True))}</pre>" for example in schema.get("examples", ()))
    bare = {name: value for name, value in schema.items() if name != "examples"}
    shown = f"<details><summary>schema</summary><div><pre>{escape(_json(bare, indent=True))}</pre></div></details>"
    return examples + (shown if bare else "")


def _json(value: Any, *, indent: bool = False) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None).decode()
