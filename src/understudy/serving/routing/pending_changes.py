"""What may have changed in the registry since a proxy read it: some models, everything, or what a poll finds."""

import asyncio

from understudy.ports.registry.policy import PolicyChange


class PendingChanges:
    """Collects notifications until they are read."""

    def __init__(self) -> None:
        self.models: set[str] = set()
        self.everything = False
        self.must_poll = False
        """Whether the registry is asked what has changed before anything is read."""
        self.has_just_loaded = False
        """Whether a poll finds all that may have changed since everything was loaded."""
        self._wake = asyncio.Event()

    def __bool__(self) -> bool:
        return self.everything or bool(self.models)

    def note(self, change: PolicyChange) -> None:
        """Take a notification: of one model, or of a subscription that began and may have missed some."""
        if change.model_name is not None:
            self.models.add(change.model_name)
        elif self.has_just_loaded:
            self.has_just_loaded, self.must_poll = False, True
        else:
            self.everything = True
        self._wake.set()

    def note_everything(self) -> None:
        """Have everything read."""
        self.everything = True
        self._wake.set()

    def retry(self) -> None:
        """Let the next wait end at once: the last attempt to read failed."""
        self._wake.set()

    async def wait(self, poll_seconds: float) -> bool:
        """Wait for a notification, at most until the next poll, and not at all after a failure."""
        try:
            async with asyncio.timeout(poll_seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True

    def take(self) -> tuple[bool, set[str]]:
        """Take out all that is pending, before it is read: a change that arrives meanwhile must be read again."""
        everything, self.everything = self.everything, False
        models, self.models = self.models, set()
        return everything, models

    def put_back(self, taken: tuple[bool, set[str]]) -> None:
        """Have read again what could not be read."""
        everything, models = taken
        self.everything |= everything
        self.models |= models
