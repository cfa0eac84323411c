"""The demo's artifacts: what agents fetch, and what they ask of what was loaded."""

from pathlib import Path

import pytest

from understudy.adapters.artifacts.case_file import read_case_rows
from understudy.adapters.artifacts.folder_origin import FolderOrigin
from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.dev_server.example_models import example_version
from understudy.core.loading.cases import cases_of
from understudy.core.schema.compile import compile_input_schema
from understudy.entrypoints.demo.artifacts import write_artifacts
from understudy.entrypoints.demo.topology import CASES, VERSIONS


async def test_each_version_has_an_artifact_that_an_agent_fetches_by_its_digest_with_cases_that_fit_its_schema(
    tmp_path: Path,
):
    artifacts = write_artifacts(tmp_path / "artifacts")
    stage = FolderStage(tmp_path / "stage", {"": FolderOrigin(tmp_path / "artifacts")})

    for version, artifact in artifacts.items():
        staged = await stage.fetch(artifact.path, artifact.digest)
        rows = await read_case_rows(staged.folder)

        assert rows is not None
        cases = cases_of(rows.rows)
        schema = compile_input_schema(example_version(version.model_name, version.version).input_schema)
        assert len([schema.assemble(case.inputs) for case in cases]) == CASES
    assert list(artifacts) == list(VERSIONS)


def test_a_later_start_writes_the_same_artifacts(tmp_path: Path):
    assert write_artifacts(tmp_path) == write_artifacts(tmp_path)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path):
    (tmp_path / "visits").write_text("a file")

    with pytest.raises(OSError, match="visits"):
        write_artifacts(tmp_path)
