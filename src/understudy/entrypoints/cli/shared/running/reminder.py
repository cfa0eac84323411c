"""What is said while Postgres is away and a command goes on."""

from understudy.entrypoints.cli.shared.rendering import advise


class Reminder:
    """Says on standard error, once each time, that Postgres is away."""

    def __init__(self) -> None:
        self._is_said = False

    def away(self, _seconds: float) -> None:
        """Say it unless it was said."""
        if not self._is_said:
            advise("! Postgres does not answer; it is asked again every second.")
        self._is_said = True

    def back(self) -> None:
        """Be ready to say it again."""
        self._is_said = False
