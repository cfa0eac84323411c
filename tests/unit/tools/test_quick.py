"""Which tests ``make quick`` runs for what changed."""

import pytest

from tools.quick import mirrors_of

OF_DRIFT = ["core/drift/test_hours.py", "core/drift/test_hours_kept.py", "core/drift/test_report.py"]


@pytest.fixture
def checkout(tmp_path):
    for name in (
        "core/drift/test_hours.py",
        "core/drift/test_hours_kept.py",
        "core/drift/test_report.py",
        "test_settings.py",
    ):
        path = tmp_path / "tests" / "unit" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("src/understudy/core/drift/hours.py", ["core/drift/test_hours.py", "core/drift/test_hours_kept.py"]),
        ("src/understudy/core/drift/limits.py", OF_DRIFT),
        ("src/understudy/core/drift/hourly/sums.py", OF_DRIFT),
        ("src/understudy/core/schema/codec.py", []),
        ("src/understudy/settings.py", ["test_settings.py"]),
        ("src/understudy/errors.py", []),
        ("tests/unit/core/drift/test_report.py", ["core/drift/test_report.py"]),
        ("tests/unit/conftest.py", []),
        ("tests/integration/prediction_log/test_spool.py", []),
        ("tools/quick.py", []),
    ],
)
def test_a_module_is_tested_by_its_mirror_or_else_by_its_packages_tests(checkout, changed, tests):
    found = mirrors_of([changed], checkout)

    assert found == [f"tests/unit/{test}" for test in tests]


def test_two_modules_without_mirrors_run_their_packages_tests_once(checkout):
    changed = ["src/understudy/core/drift/limits.py", "src/understudy/core/drift/measures.py"]

    assert mirrors_of(changed, checkout) == [f"tests/unit/{test}" for test in OF_DRIFT]
