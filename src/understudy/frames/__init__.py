"""Readers for notebooks: the log, what verdicts rested on, and declared tests, as rows for pandas or polars.

It needs the extra ``cli`` and a login of the database that may read; pandas and polars are imported when asked for.
"""

from understudy.frames.reader import Reader
from understudy.frames.rows import Rows

__all__ = ["Reader", "Rows"]
