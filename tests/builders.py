"""Values that tests are about, with everything unimportant filled in."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from understudy.core.prediction_log.row import PredictionRow
from understudy.core.routing.policy import ModelVersion, Role, ServingPolicy
from understudy.core.routing.policy_document import version_from_row

FEATURES = ("age", "income")


def an_input_schema(**changes: Any) -> dict[str, Any]:
    return {
        "features": [{"name": name, "dtype": "float32"} for name in FEATURES],
        "tensors": [{"name": "input", "dtype": "float32", "features": list(FEATURES)}],
        "batch": True,
        **changes,
    }


def a_version_row(version: str = "1", **changes: Any) -> dict[str, Any]:
    return {
        "id": int(version) if version.isdigit() else 900,
        "version": version,
        "status": "staging",
        "protocol": "oip",
        "endpoints": ["127.0.0.1:9000"],
        "input_schema": an_input_schema(),
        "output_schema": {},
        "backend": {},
        "deterministic": True,
        "cache_ttl_seconds": 300,
        "timeout_ms": 500,
        **changes,
    }


def a_version(version: str = "1", model_name: str = "visits", **changes: Any) -> ModelVersion:
    return version_from_row(model_name, a_version_row(version, **changes))


def a_policy(
    *,
    model_name: str = "visits",
    champion: ModelVersion | None = None,
    challenger: ModelVersion | None = None,
    challenger_weight: int = 0,
    shadow: ModelVersion | None = None,
    category_roles: Mapping[str, Role] | None = None,
    **changes: Any,
) -> ServingPolicy:
    champion = champion or a_version("1", model_name)
    if challenger is None and challenger_weight:
        challenger = a_version("2", model_name)
    named = [version for version in (champion, challenger, shadow) if version is not None]
    return ServingPolicy(
        model_name=model_name,
        champion=champion,
        challenger=challenger,
        challenger_weight=challenger_weight,
        shadow=shadow,
        category_roles=category_roles or {},
        versions={version.version: version for version in named},
        **changes,
    )


def policy_rows(**changes: Any) -> dict[str, Any]:
    """Return one model's part of a policy document."""
    policy: dict[str, Any] = {
        "champion_version": 1,
        "challenger_version": None,
        "challenger_weight": 0,
        "shadow_version": None,
        "shadow_percent": 100,
        "fallback": True,
        "salt": None,
        "category_roles": {},
        "generation": 1,
        "rollout_id": None,
    }
    versions = changes.pop("versions", [a_version_row("1"), a_version_row("2"), a_version_row("3")])
    return {"policy": {**policy, **changes}, "versions": versions}


class KeptRows:
    """A spool that keeps the rows as they are, for tests to look at."""

    def __init__(self) -> None:
        self.rows: list[PredictionRow] = []

    def append(self, row: PredictionRow) -> bool:
        self.rows.append(row)
        return True

    def append_all(self, rows: Sequence[PredictionRow]) -> Collection[int]:
        kept = self.rows.copy()
        try:
            return [place for place, row in enumerate(rows) if not self.append(row)]
        except Exception:
            self.rows[:] = kept
            raise
