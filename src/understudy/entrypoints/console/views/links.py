"""Addresses of the console's own pages; names of models are quoted whole."""

from urllib.parse import quote

ROLL_BACK = "rollback"
SCORES, EXPECTED = "scores", "expected"
"""Of a resumption, in its address and its form: that scores unlike the champion's are meant."""
DECLARE, STOP, TAKE = OF_EXPERIMENTS = ("declare", "stop", "take")
"""Acts on declared tests: one begins, one ends, an interim analysis that is due is taken."""
RETIRE, BRING_BACK, REPLAY = OF_VERSIONS = ("retire", "bring-back", "replay")
"""Acts on versions: one is retired, a retired one is staging again, one is asked what it makes of logged calls."""
_BEGINNINGS = {
    "set": "policy",
    "restore": "audit",
    "start": "start",
    **dict.fromkeys(OF_EXPERIMENTS, "experiments"),
    **dict.fromkeys(OF_VERSIONS, "versions"),
}

_DOTS = (".", "..")


def model_path(model_name: str) -> str:
    """Return the address of a model's page."""
    return f"/models/{quote(model_name, safe='')}"


def trouble_path(model_name: str | None) -> str:
    """Return the address of the part of a model's pages, or of that of all models, that tells of Health."""
    return "/live/trouble" if model_name is None else f"/live{model_path(model_name)}/trouble"


def rollout_path(model_name: str, rollout_id: int) -> str:
    """Return the address of a rollout's page."""
    return f"{model_path(model_name)}/rollouts/{rollout_id}"


def act_path(model_name: str, act: str, rollout_id: int | None) -> str:
    """Return the address of the page that asks before an act, and that carries it out."""
    behind = "" if rollout_id is None else f"?rollout={rollout_id}"
    return f"{model_path(model_name)}/acts/{act}{behind}"


def resume_expecting_path(model_name: str, rollout_id: int) -> str:
    """Return the address of the page that asks before a rollout is resumed whose scores differ as they are meant to."""
    return f"{act_path(model_name, 'resume', rollout_id)}&{SCORES}={EXPECTED}"


def versions_path(model_name: str) -> str:
    """Return the address of the page of a model's versions."""
    return f"{model_path(model_name)}/versions"


def version_act_path(model_name: str, act: str, version: str) -> str:
    """Return the address of the page that asks before an act on a version."""
    return f"{model_path(model_name)}/acts/{act}?version={quote(version, safe='')}"


def policy_path(model_name: str) -> str:
    """Return the address of the page of a model's policy."""
    return f"{model_path(model_name)}/policy"


def start_path(model_name: str) -> str:
    """Return the address of the page that starts a rollout."""
    return f"{model_path(model_name)}/start"


def audit_path(model_name: str) -> str:
    """Return the address of the page of who changed a model's policy."""
    return f"{model_path(model_name)}/audit"


def prediction_path(prediction_id: str) -> str:
    """Return the address of the page of one call."""
    return f"/predictions/{quote(prediction_id, safe='')}"


def entity_path(model_name: str, entity_id: str) -> str:
    """Return the address of the page of one entity of a model."""
    path = f"{model_path(model_name)}/entities"
    # Browsers take these out of a path, in whatever way they are quoted.
    return f"{path}?id={entity_id}" if entity_id in _DOTS else f"{path}/{quote(entity_id, safe='')}"


def experiments_path(model_name: str) -> str:
    """Return the address of the page of a model's declared tests."""
    return f"{model_path(model_name)}/experiments"


def experiment_path(model_name: str, test_id: int) -> str:
    """Return the address of the page of one declared test."""
    return f"{experiments_path(model_name)}/{test_id}"


def beginning_of(path: str) -> str:
    """Return where the act of an address begins anew: its own page that asks may need what only its form knows."""
    model, _, act = path.rpartition("/acts/")
    page = _BEGINNINGS.get(act)
    return f"{model}/{page}" if page is not None else path
