"""Which proxy a command goes to, if it goes over HTTP at all."""

from typing import NamedTuple

from understudy.entrypoints.cli.shared.contexts.context_file import default_path, read_contexts
from understudy.entrypoints.demo.running import read_running
from understudy.settings import Settings


class Place(NamedTuple):
    """Where the proxy is, and the key that it gets."""

    url: str
    credential: str | None


class ChosenProxy(NamedTuple):
    """The proxy of a command, and by what it was chosen, in words; a context's key is read by :meth:`place`."""

    place: Place
    chosen_by: str


def chosen_proxy(settings: Settings) -> ChosenProxy | None:
    """Return the proxy that commands go to; ``None``: they go to the database.

    The first of these decides: UNDERSTUDY_CONTEXT, DATABASE_URL, a demo in this folder (its database),
    UNDERSTUDY_PROXY_URL, the context in use.

    Raises:
        CommandRefused: There is no such context, or its key cannot be read.
    """
    if settings.context is not None:
        return _of_context(settings, settings.context)
    if "database_url" in settings.model_fields_set:
        return None
    if read_running(settings.state_dir) is not None:
        return None
    if settings.proxy_url is not None:
        return ChosenProxy(Place(settings.proxy_url.rstrip("/"), own_credential(settings)), "UNDERSTUDY_PROXY_URL")
    current = read_contexts(settings.contexts or default_path()).current
    return None if current is None else _of_context(settings, current)


def own_credential(settings: Settings) -> str | None:
    """Return the key of ``UNDERSTUDY_CREDENTIAL``."""
    return settings.credential.get_secret_value() if settings.credential else None


def _of_context(settings: Settings, name: str) -> ChosenProxy:
    context = read_contexts(settings.contexts or default_path()).named(name)
    return ChosenProxy(Place(context.url, own_credential(settings) or context.credential()), f"context {name}")
