"""Which proxy a command goes to, if it goes over HTTP at all."""

from typing import NamedTuple

from understudy.entrypoints.cli.shared.contexts.context_file import (
    checked_key,
    checked_url,
    default_path,
    read_contexts,
)
from understudy.entrypoints.demo.running import read_running
from understudy.settings import Settings

PROXY_URL, _CREDENTIAL = "UNDERSTUDY_PROXY_URL", "UNDERSTUDY_CREDENTIAL"


class Place(NamedTuple):
    """Where the proxy is, and the key that it gets."""

    url: str
    credential: str | None


class ChosenProxy(NamedTuple):
    """The proxy of a command, and by what it was chosen, in words."""

    place: Place
    chosen_by: str

    def words(self) -> str:
        """Return where a command goes, and whether others can read its key on the way."""
        from understudy.client.connection import is_plain  # noqa: PLC0415 - a client of HTTP, for who has a URL

        reads = "; http:// is not encrypted: the network can read the key" if self.place.credential else ""
        return f"{self.chosen_by}: {self.place.url}{reads if is_plain(self.place.url) else ''}"


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
        url = checked_url(settings.proxy_url, PROXY_URL)
        return ChosenProxy(Place(url, own_credential(settings)), PROXY_URL)
    current = read_contexts(settings.contexts or default_path()).current
    return None if current is None else _of_context(settings, current)


def own_credential(settings: Settings) -> str | None:
    """Return the key of ``UNDERSTUDY_CREDENTIAL``.

    Raises:
        CommandRefused: It holds no key.
    """
    return checked_key(settings.credential.get_secret_value(), _CREDENTIAL) if settings.credential else None


def _of_context(settings: Settings, name: str) -> ChosenProxy:
    context = read_contexts(settings.contexts or default_path()).named(name)
    return ChosenProxy(Place(context.url, own_credential(settings) or context.credential()), f"context {name}")
