"""The actor of a command, for the audit: the login of the database; over HTTP the proxy signs with the key."""

import getpass
import os

from understudy.core.connection_urls import postgres_user
from understudy.entrypoints.cli.shared.contexts.chosen_proxy import chosen_proxy
from understudy.entrypoints.cli.shared.environment import read_settings, settings_with_demo
from understudy.ports.registry.registry import Actor
from understudy.settings import Settings

OF_THE_KEY = "key"
"""Stands for the key where a command goes over HTTP; it is not sent."""


def actor_of_command(reason: str | None) -> Actor:
    """Return the login of this command as the actor of a change."""
    return Actor(name=this_login(), via="cli", reason=reason)


def this_login() -> str:
    """Return the login that this command's changes are signed with, which the database has checked.

    A variable that anyone may set, such as LOGNAME, names no actor.

    Raises:
        CommandRefused: The environment cannot be used.
    """
    if chosen_proxy(read_settings()) is not None:
        return OF_THE_KEY
    return login_of(settings_with_demo(lambda _: None))


def login_of(settings: Settings) -> str:
    """Return the login that the client takes: of ``DATABASE_URL``, else ``PGUSER``, else this machine's user."""
    named = postgres_user(settings.database_url.get_secret_value()) or os.environ.get("PGUSER")
    if named:
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
