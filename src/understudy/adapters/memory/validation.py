"""The in-memory twin of ``ports.Validation``."""

from pathlib import Path

from understudy.errors import NotValidated


class MemoryValidation:
    """A :class:`understudy.ports.loading.validation.Validation` in this process."""

    def __init__(self) -> None:
        self.fails: dict[tuple[str, str], str] = {}
        """What is wrong with a version, by its model and label."""
        self.checked: list[tuple[str, str]] = []

    async def check(self, model_name: str, version: str, folder: Path, *, has_callers: bool) -> int:  # noqa: ARG002 - it reads no case
        self.checked.append((model_name, version))
        if (model_name, version) in self.fails:
            raise NotValidated(self.fails[model_name, version])
        return 1
