"""A command that goes on while Postgres is away says so once."""

from understudy.entrypoints.cli.shared.running.reminder import Reminder


def test_lines_of_json_are_followed_by_one_reminder_each_time(capsys):
    reminder = Reminder()

    for _ in range(3):
        reminder.away(1.0)
    reminder.back()
    reminder.away(1.0)

    assert capsys.readouterr().err.count("Postgres does not answer") == 2
    assert capsys.readouterr().out == ""
