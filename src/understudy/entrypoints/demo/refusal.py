"""The error of a demo that cannot start or go on."""


class DemoRefused(Exception):
    """What happened, and what to do next."""

    def __init__(self, detail: str, next_step: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.next_step = next_step
