"""Whether two versions of a model are told apart at a model server, or one model there answers the calls of both."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

WITHOUT_VERSIONS: Final = frozenset({"mlflow", "json"})
"""Protocols in which a call names neither a model nor a version; ``json`` may do so in its path and body."""
_SENT_ALIKE: Final = frozenset({"model_name", "version", "hedge", "tls", "discover", "answers_as", "typed_contents"})
"""``backend`` settings that are compared by themselves, or say how a call is made and never what it asks for."""
_DEFAULTS: Final = {"signature_name": "serving_default", "service_path": "inference.GRPCInferenceService"}


class CalledVersion(Protocol):
    """What says whom a version's calls go to; ``VersionRecord`` and ``ModelVersion`` have it."""

    @property
    def model_name(self) -> str:
        """The model's name."""

    @property
    def version(self) -> str:
        """The version's label."""

    @property
    def protocol(self) -> str:
        """How its servers are called."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Its servers."""

    @property
    def backend(self) -> Mapping[str, Any]:
        """What its calls say beside the inputs."""


class SameCall(NamedTuple):
    """Two versions whose calls a model server cannot tell apart, or perhaps cannot."""

    version: str
    """Of the one that is looked at."""
    other: str
    endpoints: tuple[str, ...]
    """That both have."""
    unnamed: tuple[str, ...]
    """Those of the two that leave it to the server which of its versions answers."""
    is_certain: bool
    """``False``: only one leaves it to the server, which may choose the model of the other one."""
    names_versions: bool
    """Whether their protocol can name a version at all."""

    @property
    def words(self) -> str:
        """What is wrong, as a sentence without its full stop."""
        places = ", ".join(self.endpoints)
        if self.is_certain:
            return f"{self.other} and {self.version} are the same call at {places}: one model there answers both"
        (unnamed,) = self.unnamed
        named = self.other if unnamed == self.version else self.version
        return f"{unnamed} lets the server at {places} choose its version, which may be the model of {named}"

    @property
    def advice(self) -> str:
        """What to do about it, as a sentence."""
        if not self.names_versions:
            return "Give each a server of its own: calls of this protocol name no version."
        which = self.unnamed or (self.version,)
        options = " and ".join(f"{version} with --backend version={version}" for version in which)
        return f"Register {options}, or as the server calls it; or give each a server of its own."


def same_call(version: CalledVersion, other: CalledVersion) -> SameCall | None:
    """Return how two versions of a model may get answers of one model; ``None`` where a server tells them apart.

    It cannot where protocol, endpoint, the model's name there, its version there and all else that a call says of the
    model are the same. A version that is left to the server may be any.
    """
    shared = tuple(endpoint for endpoint in version.endpoints if endpoint in other.endpoints)
    if not shared or version.protocol != other.protocol or _asked_for(version) != _asked_for(other):
        return None
    named = {one.version: _version_at_server(one) for one in (other, version)}
    unnamed = tuple(label for label, at_server in named.items() if at_server is None)
    is_certain = len(set(named.values())) == 1
    if not is_certain and not unnamed:
        return None
    names_versions = version.protocol not in WITHOUT_VERSIONS
    return SameCall(version.version, other.version, shared, unnamed, is_certain, names_versions)


def same_calls(version: CalledVersion, others: Iterable[CalledVersion]) -> list[SameCall]:
    """Return with which others a version shares its calls; it is not compared with itself."""
    compared = (same_call(version, other) for other in others if other.version != version.version)
    return [found for found in compared if found is not None]


def _asked_for(version: CalledVersion) -> Mapping[str, Any]:
    """Return all of a call that chooses a model, but its version."""
    told = {name: value for name, value in version.backend.items() if name not in _SENT_ALIKE}
    name = None if version.protocol in WITHOUT_VERSIONS else version.backend.get("model_name", version.model_name)
    return {**_DEFAULTS, **told, "model_name": name}


def _version_at_server(version: CalledVersion) -> str | None:
    """Return the version's name at its server; ``None``: the server chooses."""
    named = version.backend.get("version")
    if named is None or version.protocol in WITHOUT_VERSIONS:
        return None
    is_any = not str(named) or (version.protocol.startswith("tfserving") and str(named) == "0")
    return None if is_any else str(named)
