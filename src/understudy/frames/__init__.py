"""Readers for notebooks: the log, what verdicts rested on, and declared tests, as rows for pandas or polars.

It needs the extra ``cli`` and a login of the database that may read; pandas and polars are imported when asked for.
"""

from understudy import DISTRIBUTION

try:
    from understudy.frames.reader import Reader
    from understudy.frames.rows import Rows
except ModuleNotFoundError as problem:
    if (problem.name or "").partition(".")[0] == "understudy":
        raise
    words = f"understudy.frames needs {problem.name}: pip install '{DISTRIBUTION}[frames]'"
    raise ModuleNotFoundError(words, name=problem.name) from problem

__all__ = ["Reader", "Rows"]
