"""How this process reaches model servers."""

from collections.abc import Callable
from functools import partial

from understudy.adapters.model_servers.connect import connect
from understudy.ports.model_backend import ModelBackend
from understudy.settings import Settings


def connector_of(settings: Settings) -> Callable[..., ModelBackend]:
    """Return :func:`understudy.adapters.model_servers.connect.connect` with the operator's rules and authorities."""
    return partial(connect, rules=settings.endpoint_rules, ca_file=settings.backend_ca)
