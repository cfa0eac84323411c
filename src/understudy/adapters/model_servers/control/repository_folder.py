"""The folder that a model server reads models from: an agent puts each there, whole, under its own name.

A file system may hang. Each piece of work has a bound, and its thread is left behind where it cannot end.
"""

import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final
from uuid import uuid4

from understudy.adapters.artifacts.bounded_thread import go_on_unless, in_bounded_thread
from understudy.adapters.model_servers.control.repository_layout import Copy, Layout, own_layout
from understudy.errors import LoadRefused

PUT_SECONDS: Final = 300.0
DROP_SECONDS: Final = 60.0


def link_or_copy(source: str, target: str) -> None:
    """Link a file where the file system is the same and has links, and copy it elsewhere."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


class RepositoryFolder:
    """Keeps each model as the folder ``<folder>/<name>``; it appears there whole, or not at all.

    Args:
        folder: What the server reads.
        layout: How the server wants a model's files to lie.
        copy: How one file gets there.
        seconds: Longest time for one model.
    """

    def __init__(
        self, folder: Path, layout: Layout = own_layout, *, copy: Copy = link_or_copy, seconds: float = PUT_SECONDS
    ) -> None:
        self._folder = folder
        self._layout = layout
        self._copy = copy
        self._seconds = seconds

    async def put(self, name: str, source: Path, framework: str) -> None:
        """Put a staged folder's files there.

        Raises:
            LoadRefused: They cannot be put there, or not in time, or the server has no use for them.
        """
        try:
            await in_bounded_thread(partial(self._put, name, source, framework), self._seconds)
        except OSError as problem:
            raise LoadRefused(f"{name} cannot be put into {self._folder}: {_words(problem)}") from None

    async def drop(self, name: str) -> None:
        """Delete a model's files. What hangs or cannot be deleted stays: the next load of the model replaces it."""
        try:
            await in_bounded_thread(lambda _: self._remove(name), DROP_SECONDS)
        except OSError:
            return

    def _put(self, name: str, source: Path, framework: str, given_up: Event) -> None:
        """Give the files the model's name at the end, so that the server sees all of it or nothing.

        What an agent left that was cut off goes; an agent that has lost its lease, and copies still, fails by that.
        """
        # No name of a model has a ~: the parts of another one are not taken for this one's.
        for left in self._folder.glob(f".{name}~*.part"):
            shutil.rmtree(left, ignore_errors=True)
        part = self._part_of(name)
        part.mkdir(parents=True)

        def copy(one: str, target: str) -> None:
            go_on_unless(given_up)
            self._copy(one, target)

        try:
            self._layout(source, part, name, framework, copy)
            go_on_unless(given_up)
            self._remove(name)
            part.rename(self._folder / name)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _remove(self, name: str) -> None:
        """Take a model's files out of the server's sight; what the server wrote may not be deletable, and stays."""
        aside = self._part_of(name)
        with suppress(FileNotFoundError):
            (self._folder / name).rename(aside)
            shutil.rmtree(aside, ignore_errors=True)

    def _part_of(self, name: str) -> Path:
        return self._folder / f".{name}~{uuid4().hex}.part"


def _words(problem: OSError) -> str:
    """Return what went wrong; of many files that could not be copied the first one's words stand for all."""
    if isinstance(problem, shutil.Error):
        failed = problem.args[0]
        source, _, why = failed[0]
        more = f" ({len(failed) - 1} more)" if len(failed) > 1 else ""
        return f"{Path(source).name}: {why}{more}"
    return problem.strerror or str(problem)
