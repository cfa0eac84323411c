"""The bodies of calls about versions."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from understudy.entrypoints.proxy.control.bodies import Body, Label, Reason, documented, refused
from understudy.lifecycle.version_description import problems_of
from understudy.ports.registry.registry import NewVersion

MAX_VERSION_BYTES = 1_048_576
"""Of a description: schemas of thousands of features, and baselines of drift."""
MAX_ENDPOINTS = 100
"""Without a bound a body of 1 MiB with 500,000 wrong ones took 1.25 s to be refused."""
_OWN = {"version", "group_name", "requires_validation", "replace", "reason"}
"""Fields of the body that a description in a file has not."""


class VersionRegistration(Body):
    """A version to be registered, with the fields that ``understudy version register --from`` reads."""

    model_config = ConfigDict(
        json_schema_extra=documented(
            {
                "version": "7",
                "artifact_path": "s3://models/visits/7",
                "framework": "sklearn",
                "input_schema": {"features": [{"name": "age", "datatype": "FP32"}]},
                "endpoints": ["models:8001"],
            }
        )
    )

    version: Label
    artifact_path: str
    framework: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] = Field(default={})
    metrics: dict[str, Any] | None = None
    protocol: str = "oip"
    artifact_digest: str | None = None
    base_model: str | None = Field(None, description="What it was trained from; the risk of a rollout rests on it.")
    family: str | None = None
    backend: dict[str, Any] = Field(default={})
    deterministic: bool = True
    cache_ttl_seconds: int = 300
    timeout_ms: int = 500
    endpoints: list[Annotated[str, Field(max_length=255)]] = Field(
        default=[], max_length=MAX_ENDPOINTS, description="host:port of its model servers."
    )
    group_name: Label | None = Field(None, description="Have agents load it onto this group of servers.")
    requires_validation: bool = Field(
        default=False, description="With a group: it gets a role only with a validation that holds."
    )
    replace: bool = Field(default=False, description="Take the place of a version of this name that never served.")
    reason: Reason | None = Field(None, description="Kept in the audit.")

    def version_of(self, model_name: str) -> NewVersion:
        """Return the version of a model.

        Raises:
            BodyInvalid: Naming what a description may not say, as a file is refused.
        """
        described = self.model_dump(exclude=_OWN, exclude_unset=True)
        problems = problems_of(described)
        if problems:
            raise refused(*problems)
        targets = tuple(described.pop("endpoints", ()))
        return NewVersion(
            model_name=model_name,
            version=self.version,
            group_name=self.group_name,
            requires_validation=self.requires_validation,
            endpoints=targets,
            **described,
        )
