"""Errors as clients of other protocols read them: JSON whose ``error`` is a sentence, beside a problem's fields."""

from collections.abc import Sequence
from typing import Any

import orjson

from understudy.entrypoints.proxy.messages.problems import problem_headers, problem_of, status_of
from understudy.entrypoints.proxy.messages.reply import JSON, Header, Reply
from understudy.errors import UnderstudyError


def refusal(error: UnderstudyError, path: str, *, row: int | None = None, receipt: Sequence[Header] = ()) -> Reply:
    """Return the answer that says what is wrong, and what to do next.

    Args:
        error: What went wrong.
        path: The request's.
        row: The row that failed, of several.
        receipt: Headers of a call whose route was known.
    """
    headers = [header for header in problem_headers(error) if header[0] != b"content-type"]
    return Reply(status_of(error), [JSON, *headers, *receipt], orjson.dumps(sentence_of(error, path, row)))


def sentence_of(error: UnderstudyError, path: str, row: int | None) -> dict[str, Any]:
    """Return a problem whose ``error`` says it all in a sentence."""
    problem = problem_of(error, path.encode(errors="replace").decode())
    if row is not None:
        problem["detail"] = f"row {row}: {problem['detail']}"
    detail = "" if problem["detail"] == problem["title"] else f": {problem['detail']}"
    for place in problem.get("errors", [])[:1]:  # these clients show the sentence alone
        detail += f", at {place['pointer']}: {place['detail']}"
    problem["error"] = f"{problem['code']} {problem['title']}{detail}. Next: {problem['next']}"
    return problem
