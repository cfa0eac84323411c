"""The environment of a command: its settings, and the demo that runs beside it."""

from collections.abc import Callable
from pathlib import Path

from pydantic import SecretStr, ValidationError

from understudy.entrypoints.cli.shared.contexts.chosen_proxy import chosen_proxy
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.rendering import advise
from understudy.entrypoints.demo.running import read_running
from understudy.errors import DatabaseNeeded
from understudy.settings import Settings


def read_settings() -> Settings:
    """Return the settings that a command reads from its environment, or refuse the command.

    Raises:
        CommandRefused: Naming each variable that cannot be used; values are not repeated, they may be secrets.
    """
    try:
        return Settings()
    except ValidationError as problem:
        wrong = (f"{_variable(str(error['loc'][0]))}: {error['msg']}" for error in problem.errors())
        raise CommandRefused(
            ExitCode.USAGE, "\n  ".join(["the environment cannot be used", *wrong]), "Correct or unset these variables."
        ) from None


def settings_with_demo(tell: Callable[[str], None] = advise) -> Settings:
    """Return the settings; without ``DATABASE_URL`` those of a demo that runs in this folder, which ``tell`` says.

    Raises:
        DatabaseNeeded: Commands go over HTTP here, and this one cannot.
    """
    settings = read_settings()
    chosen = chosen_proxy(settings)
    if chosen is not None:
        raise DatabaseNeeded(f"this command works on the database, and {chosen.chosen_by} names a proxy")
    if "database_url" in settings.model_fields_set:
        return settings
    running = read_running(Path(settings.state_dir))
    if running is None:
        here = "go to the demo's folder, or name its state by UNDERSTUDY_STATE_DIR"
        tell(f"no demo runs in {settings.state_dir}, and DATABASE_URL is not set: {here}")
        return settings
    tell(f"demo in {settings.state_dir} (DATABASE_URL is not set)")
    redis = settings.redis_url or (SecretStr(running["redis_url"]) if running["redis_url"] else None)
    return settings.model_copy(update={"database_url": SecretStr(running["database_url"]), "redis_url": redis})


def settings_of_place() -> Settings:
    """Return the settings of a command that works wherever its registry is: over HTTP, or in the database."""
    settings = read_settings()
    return settings_with_demo() if chosen_proxy(settings) is None else settings


def _variable(field: str) -> str:
    return field if field.isupper() else f"UNDERSTUDY_{field.upper()}"
