"""What is said while Postgres, or a proxy, is away and a command goes on."""

from understudy.entrypoints.cli.shared.rendering import advise


class Reminder:
    """Says on standard error, once each time, that ``who`` is away."""

    def __init__(self, who: str = "Postgres") -> None:
        self._who = who
        self._is_said = False

    def away(self, _seconds: float) -> None:
        """Say it unless it was said."""
        if not self._is_said:
            advise(f"! {self._who} does not answer; it is asked again every second.")
        self._is_said = True

    def back(self) -> None:
        """Be ready to say it again."""
        self._is_said = False
