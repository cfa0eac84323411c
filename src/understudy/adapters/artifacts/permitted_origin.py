"""``Origin`` that reads from the stores alone that an operator has permitted."""

from collections.abc import Callable, Sequence
from functools import cached_property

from understudy.adapters.artifacts.artifact_tree import ArtifactTree
from understudy.adapters.artifacts.origin import Origin
from understudy.core.loading.artifact_address import is_in
from understudy.errors import ArtifactUnreachable


class PermittedOrigin:
    """An :class:`understudy.adapters.artifacts.origin.Origin` of permitted stores.

    Who may register a version decides which address an agent asks, and an agent has logins and a place in the network.

    Args:
        open_origin: Opens the origin when an artifact is first read: its library may be missing where none ever is.
        stores: Beginnings of addresses that may be read.
    """

    def __init__(self, open_origin: Callable[[], Origin], stores: Sequence[str]) -> None:
        self._open_origin = open_origin
        self._stores = stores

    def copy(self, uri: str, tree: ArtifactTree) -> str:
        if not is_in(uri, self._stores):
            raise ArtifactUnreachable(f"{uri[:500]} lies in none of the stores that UNDERSTUDY_ARTIFACT_STORES permits")
        return self._origin.copy(uri, tree)

    @cached_property
    def _origin(self) -> Origin:
        return self._open_origin()
