"""The environment of a command: its settings, and the demo that runs beside it."""

import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from pydantic import SecretStr, ValidationError

from understudy.entrypoints.cli.shared.contexts.chosen_proxy import PROXY_URL, chosen_proxy
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


def hint_without_place(settings: Settings) -> str | None:
    """Return what to name where nothing names a database or a proxy; ``None`` where something does.

    A key in the environment is for a proxy, and a variable may be misspelt.
    """
    if "database_url" in settings.model_fields_set:
        return None
    proxy = f"{PROXY_URL}, or understudy context set NAME --url URL"
    meant = misspelt_variable()
    first = "" if meant is None else f"{meant[0]} is no setting: did you mean {meant[1]}? "
    if settings.credential is not None:
        return f"{first}UNDERSTUDY_CREDENTIAL is a key for a proxy, and none is named: set {proxy}."
    return f"{first}Nothing names a place: set DATABASE_URL for a database; for a proxy {proxy}."


def misspelt_variable() -> tuple[str, str] | None:
    """Return a variable that is named almost as a setting of where commands go, and that setting."""
    for name in sorted(os.environ):
        if name.startswith("UNDERSTUDY_") and name.removeprefix("UNDERSTUDY_").lower() not in Settings.model_fields:
            near = get_close_matches(name, (PROXY_URL, "UNDERSTUDY_CONTEXT"), 1, 0.8)
            if near:
                return name, near[0]
    return None


def settings_of_place() -> Settings:
    """Return the settings of a command that works wherever its registry is: over HTTP, or in the database."""
    settings = read_settings()
    return settings_with_demo() if chosen_proxy(settings) is None else settings


def _variable(field: str) -> str:
    return field if field.isupper() else f"UNDERSTUDY_{field.upper()}"
