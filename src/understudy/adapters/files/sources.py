"""Sources of versions in a file: its documents, each of which is one source."""

from pathlib import Path

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.regular_file import open_regular
from understudy.adapters.files.yaml_tree import MAX_BYTES, TreeRefused, read_documents
from understudy.core.loading.image_tag import tag_of
from understudy.core.rollout.sources.source_file import SourceDocument, read_source
from understudy.core.rollout.sources.version_source import SourceSpec
from understudy.errors import FileProblem

MAX_SOURCES = 200
_EXAMPLE = "For example: kind: mlflow, model: fraud, url: https://mlflow.internal, alias: challenger"


def read_sources(path: Path) -> list[SourceSpec]:
    """Return the sources in a file.

    Raises:
        FileRefused: It cannot be read, or is wrong; the message has each place.
    """
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES + 1)
        documents = read_documents(content, is_json=path.suffix.lower() == ".json")
    except OSError as problem:
        raise FileRefused(f"{path} cannot be read: {problem.strerror or problem}", "Name a file.") from None
    except TreeRefused as problem:
        raise FileRefused(str(FileProblem(str(path), *problem.place, problem.detail)), _EXAMPLE) from None
    if not documents:
        raise FileRefused(f"{path} is empty", _EXAMPLE)
    if len(documents) > MAX_SOURCES:
        raise FileRefused(f"{path} has more than {MAX_SOURCES} sources", "Follow some in another process.")
    found: list[SourceDocument] = []
    problems: list[FileProblem] = []
    for document in documents:
        read = read_source(str(path), document, tag_of)
        if isinstance(read, SourceDocument):
            found.append(read)
        else:
            problems += read
    problems += _twice(found)
    if problems:
        raise FileRefused("\n  ".join(["sources are wrong:", *map(str, sorted(problems))]), "Mend these places.")
    return [one.spec for one in found]


def _twice(found: list[SourceDocument]) -> list[FileProblem]:
    first: dict[str, SourceDocument] = {}
    problems = []
    for one in found:
        # Two labels of one model would start rollouts in turns.
        before = first.setdefault(one.spec.model_name, one)
        if before is not one:
            detail = f"{one.spec.model_name} has a source already, on line {before.place.line}"
            problems.append(FileProblem(one.path, *one.place, detail))
    return problems
