"""The bodies of calls about versions."""

from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from understudy.core.loading.replicas import Replicas, parse_replicas
from understudy.entrypoints.proxy.control.bodies import Body, Label, Reason, documented, refused
from understudy.ports.registry.registry import NewVersion
from understudy.registry.version_description import problems_of

MAX_VERSION_BYTES = 1_048_576
"""Of a description: schemas of thousands of features, and baselines of drift."""
MAX_ENDPOINTS = 100
"""Without a bound a body of 1 MiB with 500,000 wrong ones took 1.25 s to be refused."""
MAX_CASES = 1_000
MAX_LOAD_SECONDS = 10.0
"""What a proxy makes beside its callers."""
_OWN = {"version", "group_name", "requires_validation", "replicas", "replace", "reason"}
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
    replicas: str | None = Field(
        None, description="With a group: on how many of its servers, 2 or 1..4 by its calls; by default on all."
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
            replicas=replicas_of(self.replicas),
            endpoints=targets,
            **described,
        )


def replicas_of(text: str | None) -> Replicas | None:
    """Return on how many servers a version is to be.

    Raises:
        BodyInvalid: It is no number of them.
    """
    try:
        return None if text is None else parse_replicas(text)
    except ValueError as problem:
        raise refused(f"replicas: {problem}") from None


class ValidationRequest(Body):
    """What a version's model servers are asked: cases with their answers, calls at the ends of its schema, load."""

    model_config = ConfigDict(
        json_schema_extra=documented({"cases": [{"age": 41.0, "expected": 0.7}], "load_seconds": 5.0})
    )
    absent: ClassVar[bytes] = b"{}"

    cases: list[dict[str, Any]] | None = Field(None, max_length=MAX_CASES, description="Rows of a file of cases.")
    cases_are_text: bool = Field(default=False, description="Whether each value is a text, as those of CSV.")
    robustness: bool = Field(default=True, description="Calls at the ends of its schema.")
    load_seconds: float = Field(
        default=0.0, ge=0, le=MAX_LOAD_SECONDS, description="How long calls go, 4 at a time; 0: none."
    )
    while_serving: bool = Field(default=False, description="Of a version with a role, beside its callers.")
    reason: Reason | None = Field(None, description="Kept in the audit.")
