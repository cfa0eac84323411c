import pytest

from understudy.adapters.embedded.account import Account, is_reachable, process_options

STRANGER = Account(54_321, 54_321)


@pytest.mark.parametrize(("mode", "reachable"), [(0o755, True), (0o701, True), (0o700, False), (0o770, False)])
def test_an_account_reaches_a_folder_only_through_folders_that_it_may_enter(short_path, mode, reachable):
    home = short_path / "home"
    (home / "data").mkdir(parents=True)
    home.chmod(mode)

    assert is_reachable(home / "data", STRANGER) is reachable
    assert is_reachable(home / "data", None)


def test_a_program_starts_as_the_account_and_without_the_callers_environment(monkeypatch):
    monkeypatch.setenv("PGHOST", "elsewhere")

    dropped, own = process_options(STRANGER), process_options(None)

    assert (dropped["user"], dropped["group"], dropped["extra_groups"]) == (54_321, 54_321, [])
    assert "user" not in own
    assert "PGHOST" not in dropped["env"]
