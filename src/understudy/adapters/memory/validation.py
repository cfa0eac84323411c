"""The in-memory twin of ``ports.Validation``."""

from pathlib import Path

from understudy.errors import NotValidated


class MemoryValidation:
    """A :class:`understudy.ports.loading.validation.Validation` in this process."""

    def __init__(self) -> None:
        self.fails: dict[tuple[str, str], str] = {}
        """What is wrong with a version, by its model and label."""
        self.checked: list[tuple[str, str]] = []
        self.said = "1 cases answered as expected"
        """What a version passed; empty: it was asked nothing."""
        self.required: list[bool] = []
        """Of each that was checked, whether its validation is required."""

    async def check(
        self,
        model_name: str,
        version: str,
        folder: Path,  # noqa: ARG002 - it reads no case
        *,
        has_callers: bool,  # noqa: ARG002
        is_required: bool = False,
    ) -> str:
        self.checked.append((model_name, version))
        self.required.append(is_required)
        if (model_name, version) in self.fails:
            raise NotValidated(self.fails[model_name, version])
        return self.said
