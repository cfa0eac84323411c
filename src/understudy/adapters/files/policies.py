"""Policies in files: a file or a folder of them, read as documents with their places."""

import sys
from collections.abc import Iterator, Sequence
from os import walk
from os.path import normpath
from pathlib import Path
from typing import NamedTuple

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.yaml_tree import MAX_BYTES, TreeRefused, read_documents
from understudy.core.routing.policy_file import MAX_NAME, PolicyFile, read_policy_file
from understudy.errors import FileProblem

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILES = 1_000
STDIN = Path("-")
"""Stands for standard input, which is one file."""


class ReadFiles(NamedTuple):
    """What files say, and all that is wrong with them."""

    files: Sequence[PolicyFile]
    problems: Sequence[FileProblem]


def read_policy_files(paths: Sequence[Path]) -> ReadFiles:
    """Return the policies in files and below folders; hidden files, and others in a folder, are passed over.

    Raises:
        FileRefused: A path is none of a file or folder, or there are no files, or too many.
    """
    found = sorted({normpath(path.absolute()): path for given in paths for path in _files_at(given)}.values())
    if len(found) > MAX_FILES:
        raise FileRefused(f"there are {len(found):,} files", f"Apply at most {MAX_FILES:,} at once: name a folder.")
    files: list[PolicyFile] = []
    problems: list[FileProblem] = []
    for path in found:
        for read in _documents_of(path):
            if isinstance(read, PolicyFile):
                files.append(read)
            else:
                problems += read
    return ReadFiles(files, [*problems, *_twice(files)])


def _files_at(given: Path) -> list[Path]:
    if given == STDIN or given.is_file():
        return [given]
    if not given.is_dir():
        raise FileRefused(f"{given} is no file and no folder", "Name a file or a folder: understudy apply -f policy/")
    files = [path for path in _below(given) if path.suffix.lower() in SUFFIXES and path.is_file()]
    if not files:
        raise FileRefused(f"{given} has no file {', '.join(f'*{suffix}' for suffix in SUFFIXES)}", "Name another one.")
    return files


def _below(folder: Path) -> Iterator[Path]:
    """Yield all in a folder and below it, but nothing hidden.

    Raises:
        FileRefused: One of them cannot be read: what is in it would be passed over.
    """

    def refuse(problem: OSError) -> None:
        detail = f"{problem.filename or folder} cannot be read: {problem.strerror or problem}"
        raise FileRefused(detail, "Give the login the right to read it, or name the files.") from problem

    for where, folders, names in walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(where, name) for name in names if not name.startswith("."))


def _documents_of(path: Path) -> Iterator[PolicyFile | list[FileProblem]]:
    name = shown_path(path)
    if len(name) > MAX_NAME or not name.isprintable():
        yield [FileProblem(name, 1, 1, f"the audit keeps paths of up to {MAX_NAME} characters that can be seen")]
        return
    try:
        content = _content(path)
        documents = read_documents(content, is_json=path.suffix.lower() == ".json")
    except OSError as problem:
        yield [FileProblem(name, 1, 1, f"it cannot be read: {problem.strerror or problem}")]
    except TreeRefused as refused:
        yield [FileProblem(name, *refused.place, refused.detail)]
    else:
        if not documents:
            yield [FileProblem(name, 1, 1, "it is empty: model: NAME and at least one field are missing")]
        yield from (read_policy_file(name, document) for document in documents)


def _content(path: Path) -> bytes:
    if path == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with path.open("rb") as opened:
        return opened.read(MAX_BYTES + 1)


def shown_path(path: Path) -> str:
    """Return the path as the audit keeps it: from the folder that the command runs in, if it is below that."""
    if path == STDIN:
        return "stdin"
    whole, here = Path(normpath(path.absolute())), Path.cwd()
    return (whole.relative_to(here) if whole.is_relative_to(here) else Path(normpath(path))).as_posix()


def _twice(files: Sequence[PolicyFile]) -> Iterator[FileProblem]:
    """Yield the models that more than one document is of."""
    first: dict[str, PolicyFile] = {}
    for file in files:
        before = first.setdefault(file.model_name, file)
        if before is not file:
            where = f"{before.path}:{before.model_place.line}"
            yield file.problem("model", f"{file.model_name} is there twice: first in {where}")
