"""Writes ``docs/reference/openapi.json``: what ``GET /openapi.json`` of a proxy answers."""

import json
from pathlib import Path

from understudy.bootstrap.proxy import open_parts
from understudy.entrypoints.proxy.api.app import Proxy, create_api
from understudy.entrypoints.proxy.api.openapi.document import openapi_document
from understudy.settings import Settings

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "openapi.json"


def document_text() -> str:
    """Return the description as a file of it is written: the names of members in their order, a line for each value."""
    api = create_api(Proxy(Settings(), open_parts, lambda: None))
    return json.dumps(openapi_document(api.openapi()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(document_text())
