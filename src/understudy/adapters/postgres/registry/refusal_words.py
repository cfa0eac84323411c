"""What the registry's check constraints refuse, in words: each says what is wrong, and what fits."""

from collections.abc import Mapping
from typing import NamedTuple


class Words(NamedTuple):
    """What is wrong, and what to do."""

    detail: str
    hint: str


_TARGET = Words(
    "an endpoint is host:port of a model server, not a URL, a path, or a link-local address",
    "For example 127.0.0.1:9000 or tfs-churn-7:8500. To have each address of a name be a replica, register the version "
    "with the name as it is and --backend discover=true.",
)
_WEIGHT = "A share is a whole percent from 0 to 100."
_RATE_HINT = "understudy key create --calls-per-second 200; without the option the proxy's settings hold."
CONSTRAINT_WORDS: Mapping[str, Words] = {
    "apikey_bytes_per_second_check": Words("bytes_per_second is above 0 and at most 1,000,000,000,000", _RATE_HINT),
    "apikey_calls_per_second_check": Words("calls_per_second is above 0 and at most 1,000,000", _RATE_HINT),
    "apikey_expires_at_check": Words("expires_at is a moment", "Leave it out for a key that ends when it is revoked."),
    "apikey_sha256_check": Words("sha256 is a digest in 64 hex digits", "understudy key create computes it."),
    "apikey_tenant_check": Words("a tenant has a name of 1 to 64 characters", "Leave it out for a key of its own."),
    "modelendpoint_server_of_agent": Words(
        "an endpoint has a server if and only if an agent keeps it", "Leave source and server out: it is manual then."
    ),
    "modelendpoint_source_check": Words("source is manual or agent", "Leave it out: endpoints of people are manual."),
    "modelendpoint_target_is_host_and_port": _TARGET,
    "modelendpoint_target_is_no_scheme": _TARGET,
    "modelendpoint_target_is_not_link_local": _TARGET,
    "modelversion_base_model_check": Words("base_model is not an empty text", "Leave it out where there is none."),
    "modelversion_cache_ttl_seconds_check": Words(
        "cache_ttl_seconds is from 0 to 2,592,000, which is 30 days", "0 caches no answer of the version."
    ),
    "modelversion_family_check": Words("family is not an empty text", "Leave it out: the base model's name has it."),
    "modelversion_model_name_check": Words("a model's name has 1 to 255 characters", "Name the model."),
    "modelversion_protocol_check": Words(
        "protocol is one of oip, tfserving and torchserve; over HTTP oip-http, tfserving-http, mlflow and json",
        "oip is the Open Inference Protocol of Triton, MLServer and KServe; json is a service of a team's own.",
    ),
    "modelversion_status_check": Words(
        "status is one of staging, champion, challenger, shadow and retired",
        "Roles follow the policy: understudy model set; understudy version retire and restore do the rest.",
    ),
    "modelversion_timeout_ms_check": Words("timeout_ms is from 1 to 60,000", "500 is the default."),
    "modelversion_version_check": Words("a version has 1 to 100 characters", "For example 7."),
    "policyfile_document_check": Words(
        "document is an object, the fields that a policy's file names, of at most 262,144 characters",
        "understudy apply -f PATH writes it.",
    ),
    "policyfile_path_check": Words("path has 1 to 255 characters", "Name the file by a shorter path."),
    "servingpolicy_category_holdout_check": Words(
        "category_holdout_percent is from 0 to 50",
        "A tenth of a category is enough to compare it: understudy model set MODEL --category-holdout 10.",
    ),
    "servingpolicy_challenger_weight_check": Words("challenger_weight is from 0 to 100", _WEIGHT),
    "servingpolicy_guard_check": Words(
        "guard is one of rollback, alert and off", "rollback takes a share back that does worse, alert tells on-call."
    ),
    "servingpolicy_input_sample_percent_check": Words("input_sample_percent is from 0 to 100", _WEIGHT),
    "servingpolicy_on_drift_check": Words(
        "on_drift is alert or rollback", "alert tells on-call of a challenger that drifts, rollback takes it back."
    ),
    "servingpolicy_roles_differ": Words(
        "champion, challenger and shadow are different versions", "Name another version, or none, for one of them."
    ),
    "servingpolicy_shadow_percent_check": Words("shadow_percent is from 0 to 100", _WEIGHT),
    "servingpolicy_weight_needs_challenger": Words(
        "a share needs a challenger that has it", "Name one (--challenger VERSION), or set the weight to 0."
    ),
    "subscription_format_check": Words(
        "format is cloudevents or slack", "slack is what incoming webhooks of Slack and of Mattermost take."
    ),
    "subscription_kinds_check": Words(
        "kinds are families of events, such as rollout, or kinds of one, such as rollout.rolled_back",
        "understudy subscription add --help names the families; leave kinds out for all events.",
    ),
    "subscription_name_check": Words(
        "a subscription's name has 1 to 63 lower-case letters, digits, dots, dashes and underscores", "For example ops."
    ),
    "subscription_receiver_check": Words(
        "a receiver's name has 1 to 63 lower-case letters, digits, dots, dashes and underscores, and is no address",
        "Addresses are in UNDERSTUDY_RECEIVERS of the monitors, by such a name.",
    ),
    "subscription_severity_check": Words(
        "severity is one of info, warning, error and critical", "info is for every event."
    ),
}
"""A test compares these with the constraints that the tables of the registry have."""
