"""The exit code of ``understudy diff``: 1 says that something differs, and nothing else."""

from typing import Any

import pytest
from typer.testing import CliRunner

from understudy.entrypoints.cli import diff
from understudy.errors import RegistryUnavailable


def test_a_fault_does_not_leave_as_a_difference_does(monkeypatch):
    def fail(paths: Any) -> Any:
        raise KeyError(paths)

    monkeypatch.setattr(diff, "read_files", fail)

    done = CliRunner().invoke(diff.app, [])

    assert done.exit_code == 2
    assert "KeyError" in done.stderr


def test_an_error_with_a_code_is_reported_as_that(monkeypatch):
    def fail(paths: Any) -> Any:
        raise RegistryUnavailable(str(paths))

    monkeypatch.setattr(diff, "read_files", fail)

    with pytest.raises(RegistryUnavailable):
        CliRunner().invoke(diff.app, [], catch_exceptions=False)
