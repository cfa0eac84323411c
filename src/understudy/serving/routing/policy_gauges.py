"""Gauges of policies: what a proxy acts on, for dashboards."""

from collections.abc import Iterable, Iterator

from understudy.core.routing.policy import ModelVersion, PolicySnapshot, ServingPolicy
from understudy.ports.telemetry.telemetry import Telemetry

MODEL_GAUGES = ("policy_generation", "challenger_weight_ratio", "arms_weight_ratio", "policy_rejected")


class PolicyGauges:
    """Sets the gauges of models, one model at each step."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._shown_roles: dict[str, tuple[str, str, str]] = {}
        """The labels of ``policy_info`` by model."""

    def publish(self, before: PolicySnapshot, after: PolicySnapshot, names: Iterable[str]) -> Iterator[None]:
        """Set the gauges that differ from those of the snapshot before."""
        for name in names:
            yield
            known, policy = _gauges_of(before, name), _gauges_of(after, name)
            for gauge, value in policy.items():
                if known.get(gauge) != value:
                    self._telemetry.set(gauge, value, name)
            if name in after.policies:
                self._show_roles(after.policies[name])

    def forget(self, gone: Iterable[str]) -> Iterator[None]:
        """Drop the gauges of models that are not known any more."""
        for name in gone:
            yield
            for gauge in MODEL_GAUGES:
                self._telemetry.forget(gauge, name)
            self._forget_roles(name)

    def _show_roles(self, policy: ServingPolicy) -> None:
        """Name the versions in the labels of a gauge, so that a dashboard shows which version has which role."""
        roles = (policy.champion.version, _label_of(policy.challenger), _label_of(policy.shadow))
        if self._shown_roles.get(policy.model_name) != roles:
            self._forget_roles(policy.model_name)
            self._shown_roles[policy.model_name] = roles
            self._telemetry.set("policy_info", 1, policy.model_name, *roles)

    def _forget_roles(self, model_name: str) -> None:
        roles = self._shown_roles.pop(model_name, None)
        if roles is not None:
            self._telemetry.forget("policy_info", model_name, *roles)


def _gauges_of(snapshot: PolicySnapshot, name: str) -> dict[str, float]:
    """Return what the gauges of a model show; nothing of one that is not known."""
    if not snapshot.knows(name):
        return {}
    rejected = {"policy_rejected": float(name in snapshot.rejected)}
    policy = snapshot.policies.get(name)
    if policy is None:
        return rejected
    return {
        "policy_generation": policy.generation,
        "challenger_weight_ratio": policy.challenger_weight / 100,
        "arms_weight_ratio": len(policy.arms) / 100,
        **rejected,
    }


def _label_of(version: ModelVersion | None) -> str:
    return "" if version is None else version.version
