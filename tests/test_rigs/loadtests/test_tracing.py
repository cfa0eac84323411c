"""What tracing costs: another checkout measures itself, with its own copy of the benchmark."""

from pathlib import Path

import pytest

from loadtests.tracing import BEFORE, measured


def test_another_checkout_is_measured_by_its_own_copy_of_the_benchmark(tmp_path: Path):
    (tmp_path / "loadtests").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "loadtests" / "tracing.py").write_text(
        'import sys\nassert sys.argv[1:] == ["--mode", "off"]\nprint(28.5)\n'
    )

    assert measured(BEFORE, tmp_path / "src") == 28.5


@pytest.mark.parametrize(
    ("program", "why"), [(None, "has no loadtests/tracing.py"), ("raise SystemExit('too old')\n", "too old")]
)
def test_a_checkout_that_cannot_be_measured_is_named(tmp_path: Path, program, why):
    (tmp_path / "loadtests").mkdir()
    if program is not None:
        (tmp_path / "loadtests" / "tracing.py").write_text(program)

    with pytest.raises(RuntimeError, match=f"{tmp_path}.*{why}"):
        measured(BEFORE, tmp_path / "src")
