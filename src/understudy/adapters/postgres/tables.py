"""The schema as SQLAlchemy sees it: what the migrations make, for queries and for ``alembic revision --autogenerate``.

A test compares it with a migrated database, so it cannot drift.
"""

import re

from sqlalchemy import (
    ARRAY,
    CHAR,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import UserDefinedType

METADATA = MetaData()

_NOW = text("now()")
_WHO = text("SESSION_USER")
_EMPTY = text("'{}'::jsonb")
_TRUE = text("true")
_ZERO = text("0")
_MOMENT = DateTime(timezone=True)


class Xid8(UserDefinedType[str]):
    """A 64-bit transaction id, read and written as text."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Return the type's name in SQL."""
        return "xid8"


ischema_names["xid8"] = Xid8  # SQLAlchemy does not know the type when it reads a schema


def is_compared(name: str | None, kind: str, _parents: object) -> bool:
    """Whether Alembic compares a table with those here: monthly partitions belong to their parent, detached or not."""
    return kind != "table" or name is None or re.fullmatch(r"predictionlog_\d{4}_\d{2}(_archived_\d+)?", name) is None


MODEL_VERSION = Table(
    "modelversion",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("model_name", String(255), nullable=False),
    Column("version", String(100), nullable=False),
    Column("artifact_path", Text, nullable=False),
    Column("framework", String(50), nullable=False),
    Column("input_schema", JSONB, nullable=False),
    Column("metrics", JSONB(none_as_null=True)),
    Column("status", String(50), nullable=False, server_default="staging"),
    Column("deployed_at", _MOMENT),
    Column("created_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("protocol", String(20), nullable=False, server_default="oip"),
    Column("artifact_digest", Text),
    Column("output_schema", JSONB, nullable=False, server_default=_EMPTY),
    Column("backend", JSONB, nullable=False, server_default=_EMPTY),
    Column("deterministic", Boolean, nullable=False, server_default=_TRUE),
    Column("cache_ttl_seconds", Integer, nullable=False, server_default=text("300")),
    Column("timeout_ms", Integer, nullable=False, server_default=text("500")),
    Column("base_model", String(255)),
    Column("family", String(255)),
    UniqueConstraint("model_name", "version", name="modelversion_model_name_version_key"),
    UniqueConstraint("model_name", "id", name="modelversion_model_name_id_key"),
)

MODEL_ENDPOINT = Table(
    "modelendpoint",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("model_version_id", ForeignKey("modelversion.id", ondelete="CASCADE"), nullable=False),
    Column("target", String(255), nullable=False),
    Column("created_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("source", String(10), nullable=False, server_default=text("'manual'")),
    Column("server", ForeignKey("modelserver.name", ondelete="CASCADE")),
    UniqueConstraint("model_version_id", "target", name="modelendpoint_model_version_id_target_key"),
    Index("modelendpoint_server", "server", postgresql_where=text("server IS NOT NULL")),
)

MODEL_SERVER = Table(
    "modelserver",
    METADATA,
    Column("name", String(255), primary_key=True),
    Column("group_name", String(255), nullable=False),
    Column("target", String(255), nullable=False),
    Column("build", String(255), nullable=False, server_default=text("''")),
    Column("problem", String(500), nullable=False, server_default=text("''")),
    Column("seen_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("room_bytes", BigInteger),
    Column("draining_at", _MOMENT),
)

AGENT_LEASE = Table(
    "agentlease",
    METADATA,
    Column("name", String(255), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("renewed_at", _MOMENT, nullable=False, server_default=_NOW),
)

VERSION_LOADING = Table(
    "versionloading",
    METADATA,
    Column("model_version_id", ForeignKey("modelversion.id", ondelete="CASCADE"), primary_key=True),
    Column("group_name", String(255), nullable=False),
    Column("wanted_until", _MOMENT),
    Column("asked_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("pinned_digest", String(71)),
    Column("requires_validation", Boolean, nullable=False, server_default=text("false")),
    Column("replicas_min", SmallInteger),
    Column("replicas_max", SmallInteger),
)

PLACEMENT = Table(
    "placement",
    METADATA,
    Column("model_version_id", ForeignKey("versionloading.model_version_id", ondelete="CASCADE"), primary_key=True),
    Column("server", ForeignKey("modelserver.name", ondelete="CASCADE"), primary_key=True),
    Column("why", String(40), nullable=False),
    Column("decided_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("epoch", BigInteger, nullable=False),
    Column("idle_since", _MOMENT),
    Index("placement_server", "server"),
)

LOADED_VERSION = Table(
    "loadedversion",
    METADATA,
    Column("model_version_id", ForeignKey("modelversion.id", ondelete="CASCADE"), primary_key=True),
    Column("server", ForeignKey("modelserver.name", ondelete="CASCADE"), primary_key=True),
    Column("state", String(20), nullable=False),
    Column("attempt", Integer, nullable=False, server_default=_ZERO),
    Column("error_code", String(10)),
    Column("error", String(500)),
    Column("next_attempt_at", _MOMENT),
    Column("artifact_digest", String(71)),
    Column("removed_xid", Xid8),
    Column("removed_at", _MOMENT),
    Column("epoch", BigInteger, nullable=False),
    Column("updated_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("memory_bytes", BigInteger),
    Column("expected_bytes", BigInteger),
    Index("loadedversion_server", "server"),
)

VERSION_VALIDATION = Table(
    "versionvalidation",
    METADATA,
    Column("model_version_id", ForeignKey("modelversion.id", ondelete="CASCADE"), primary_key=True),
    Column("server", ForeignKey("modelserver.name", ondelete="CASCADE"), primary_key=True),
    Column("build", String(255), nullable=False),
    Column("artifact_digest", String(71), nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("said", String(500), nullable=False),
    Column("judged_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("judged_by", String(255), nullable=False),
    Index("versionvalidation_server", "server"),
)

SERVING_POLICY = Table(
    "servingpolicy",
    METADATA,
    Column("model_name", String(255), primary_key=True),
    Column("champion_version", ForeignKey("modelversion.id"), nullable=False),
    Column("challenger_version", ForeignKey("modelversion.id")),
    Column("challenger_weight", Integer, nullable=False, server_default=_ZERO),
    Column("shadow_version", ForeignKey("modelversion.id")),
    Column("shadow_percent", Integer, nullable=False, server_default=text("100")),
    Column("fallback", Boolean, nullable=False, server_default=_TRUE),
    Column("salt", String(255)),
    Column("category_roles", JSONB, nullable=False, server_default=_EMPTY),
    Column("rollout_id", BigInteger),
    Column("previous_champion", BigInteger),
    Column("generation", BigInteger, nullable=False, server_default=text("1")),
    Column("updated_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("updated_by", Text, nullable=False, server_default=_WHO),
    Column("input_sample_percent", SmallInteger, nullable=False, server_default=_ZERO),
    Column("arms", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    Column("guard", String(20), nullable=False, server_default="rollback"),
    Column("guard_id", BigInteger),
    Column("on_drift", String(20), nullable=False, server_default="alert"),
    Column("category_holdout_percent", SmallInteger, nullable=False, server_default=_ZERO),
    *(
        ForeignKeyConstraint(
            ["model_name", f"{role}_version"],
            ["modelversion.model_name", "modelversion.id"],
            name=f"servingpolicy_{role}_of_model",
        )
        for role in ("champion", "challenger", "shadow")
    ),
)

POLICY_FILE = Table(
    "policyfile",
    METADATA,
    Column("model_name", String(255), primary_key=True),
    Column("path", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("applied_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("applied_by", Text, nullable=False, server_default=_WHO),
)

POLICY_AUDIT = Table(
    "policyaudit",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("model_name", String(255), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("changed_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("actor", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("reason", Text),
    Column("action", String(10), nullable=False),
    Column("before", JSONB(none_as_null=True)),
    Column("after", JSONB(none_as_null=True)),
)
Index("policyaudit_model_name_id_idx", POLICY_AUDIT.c.model_name, POLICY_AUDIT.c.id.desc())
Index("policyaudit_changed_at", POLICY_AUDIT.c.changed_at)

REGISTRY_AUDIT = Table(
    "registryaudit",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("changed_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("actor", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("reason", Text),
    Column("subject", String(10), nullable=False),
    Column("subject_id", String(64), nullable=False),
    Column("model_name", String(255)),
    Column("version", String(100)),
    Column("action", String(10), nullable=False),
    Column("before", JSONB(none_as_null=True)),
    Column("after", JSONB(none_as_null=True)),
)
Index("registryaudit_model_name_id_idx", REGISTRY_AUDIT.c.model_name, REGISTRY_AUDIT.c.id.desc())
Index("registryaudit_changed_at", REGISTRY_AUDIT.c.changed_at)

POLICY_CHANGE = Table(
    "policychange",
    METADATA,
    Column("model_name", String(255), primary_key=True),
    Column("source", String(40), primary_key=True),
    Column("generation", BigInteger, nullable=False, server_default=_ZERO),
    Column("changed_xid", Xid8, nullable=False),
    Column("changed_at", _MOMENT, nullable=False, server_default=_NOW),
    Index("policychange_changed_xid_idx", "changed_xid"),
)

PREDICTION_LOG = Table(
    "predictionlog",
    METADATA,
    Column("id", BigInteger, autoincrement=True, nullable=False),
    Column("model_version_id", ForeignKey("modelversion.id"), nullable=False),
    Column("entity_id", String(255), nullable=False),
    Column("input_hash", CHAR(64), nullable=False),
    Column("prediction", JSONB, nullable=False),
    Column("latency_ms", Integer, nullable=False),
    Column("predicted_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("prediction_id", Uuid),
    Column("assigned_version_id", BigInteger),
    Column("score", Double),
    Column("latency_us", BigInteger),
    Column("role", String(20)),
    Column("reason", String(20)),
    Column("status", String(20), nullable=False, server_default="ok"),
    Column("error_code", String(20)),
    Column("bucket", SmallInteger),
    Column("policy_generation", BigInteger),
    Column("rollout_id", BigInteger),
    Column("cache_hit", Boolean, nullable=False, server_default=text("false")),
    Column("defaulted", JSONB(none_as_null=True)),
    Column("inputs", JSONB(none_as_null=True)),
    Column("deadline_us", BigInteger),
    Column("slices", JSONB(none_as_null=True)),
    PrimaryKeyConstraint("id", "predicted_at"),
)
Index(
    "predictionlog_model_version_id_predicted_at_idx",
    PREDICTION_LOG.c.model_version_id,
    PREDICTION_LOG.c.predicted_at.desc(),
)
Index(
    "predictionlog_inputs_of_hour",
    text("date_trunc('hour'::text, (predicted_at AT TIME ZONE 'UTC'::text))"),
    PREDICTION_LOG.c.model_version_id,
    text("hashtextextended(entity_id::text, 30::bigint)"),
    postgresql_where=PREDICTION_LOG.c.inputs.is_not(None),
)
Index(
    "predictionlog_inputs_of_entity",
    PREDICTION_LOG.c.entity_id,
    postgresql_where=PREDICTION_LOG.c.inputs.is_not(None),
)

PREDICTION_METRIC = Table(
    "predictionmetric",
    METADATA,
    Column("model_version_id", ForeignKey("modelversion.id"), primary_key=True),
    Column("metric_name", String(100), primary_key=True),
    Column("value", Double, nullable=False),
    Column("computed_at", _MOMENT, primary_key=True, server_default=_NOW),
    Index("predictionmetric_computed_at", "computed_at"),
)

SPOOL_OFFSET = Table(
    "spooloffset",
    METADATA,
    Column("spool_id", Text, primary_key=True),
    Column("segment", BigInteger, nullable=False),
    Column("byte_offset", BigInteger, nullable=False),
    Column("updated_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("owner", Text),
)

JUDGE_QUESTION = Table(
    "judgequestion",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("rollout_id", ForeignKey("rollout.id", ondelete="CASCADE"), nullable=False),
    Column("judge", Text, nullable=False),
    Column("pair", Text, nullable=False),
    Column("challenger_first", Boolean, nullable=False),
    Column("entity_bucket", SmallInteger, nullable=False),
    Column("prediction_id", Uuid),
    Column("cost_micros", BigInteger, nullable=False),
    Column("asked_at", _MOMENT, nullable=False, server_default=text("clock_timestamp()")),
    Column("outcome", Text),
    Column("answered_at", _MOMENT),
    Column("difference", Double),
    UniqueConstraint(
        "rollout_id", "pair", "challenger_first", name="judgequestion_rollout_id_pair_challenger_first_key"
    ),
    Index("judgequestion_asked", "judge", "asked_at"),
)

LAKE_FILE = Table(
    "lakefile",
    METADATA,
    Column("key", String(1_000), primary_key=True),
    Column("spool_id", String(100), nullable=False),
    Column("segment", BigInteger, nullable=False),
    Column("byte_offset", BigInteger, nullable=False),
    Column("layout", Integer, nullable=False),
    Column("row_count", BigInteger, nullable=False, server_default="0"),
    Column("byte_count", BigInteger, nullable=False, server_default="0"),
    Column("named_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("stored_at", _MOMENT),
    Column("commit_number", BigInteger),
    Column("committed_at", _MOMENT),
    Index("lakefile_open", "stored_at", "key", postgresql_where=text("committed_at IS NULL")),
    Index("lakefile_done", "committed_at", postgresql_where=text("committed_at IS NOT NULL")),
)

LAKE_REWRITE = Table(
    "lakerewrite",
    METADATA,
    Column("number", BigInteger, primary_key=True),
    Column("kind", String(10), nullable=False),
    Column("erasure_id", BigInteger),
    Column("old_paths", ARRAY(Text), nullable=False),
    Column("new_keys", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("row_count", BigInteger, nullable=False, server_default="0"),
    Column("begun_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("ended_at", _MOMENT),
    Column("sequence", BigInteger),
    Index("lakerewrite_ended", "ended_at", "number"),
)

ICEBERG_TABLES = Table(
    "iceberg_tables",
    METADATA,
    Column("catalog_name", String(255), primary_key=True),
    Column("table_namespace", String(255), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    Column("metadata_location", String(1_000)),
    Column("previous_metadata_location", String(1_000)),
    Column("iceberg_type", String(5)),
)

ICEBERG_NAMESPACE_PROPERTIES = Table(
    "iceberg_namespace_properties",
    METADATA,
    Column("catalog_name", String(255), primary_key=True),
    Column("namespace", String(255), primary_key=True),
    Column("property_key", String(255), primary_key=True),
    Column("property_value", String(1_000), nullable=False),
)

PREDICTION_DEAD_LETTER = Table(
    "predictiondeadletter",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("spool_id", Text, nullable=False),
    Column("segment", BigInteger, nullable=False),
    Column("byte_offset", BigInteger, nullable=False),
    Column("row", LargeBinary, nullable=False),
    Column("why", Text, nullable=False),
    Column("at", _MOMENT, nullable=False, server_default=_NOW),
    UniqueConstraint(
        "spool_id", "segment", "byte_offset", name="predictiondeadletter_spool_id_segment_byte_offset_key"
    ),
)

API_KEY = Table(
    "apikey",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("sha256", CHAR(64), nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("note", Text),
    Column("created_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("created_by", Text, nullable=False, server_default=_WHO),
    Column("revoked_at", _MOMENT),
    Column("tenant", String(64)),
    Column("calls_per_second", Double),
    Column("bytes_per_second", Double),
    Column("expires_at", _MOMENT),
)

INSTALLATION = Table(
    "installation",
    METADATA,
    Column("is_only", Boolean, primary_key=True, server_default=_TRUE),
    Column("loopback_endpoints", Boolean, nullable=False, server_default=text("false")),
    Column("archive_grace", Interval, nullable=False, server_default=text("'3 days'")),
)

PROXY_INSTANCE = Table(
    "proxyinstance",
    METADATA,
    Column("instance", Text, primary_key=True),
    Column("generations", JSONB, nullable=False, server_default=_EMPTY),
    Column("in_flight", JSONB, nullable=False, server_default=_EMPTY),
    Column("started_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("seen_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("answers_warm_ups", Boolean, nullable=False, server_default=text("false")),
    Column("read_xid", Xid8),
)

WARM_UP_REQUEST = Table(
    "warmuprequest",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("version_id", ForeignKey("modelversion.id", ondelete="CASCADE"), nullable=False),
    Column("instances", ARRAY(Text), nullable=False),
    Column("example_calls", SmallInteger, nullable=False, server_default=_ZERO),
    Column("champion_id", ForeignKey("modelversion.id", ondelete="CASCADE")),
    Column("prediction_ids", ARRAY(Uuid), nullable=False, server_default=text("'{}'")),
    Column("predicted_at", ARRAY(_MOMENT), nullable=False, server_default=text("'{}'")),
    Column("asked_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("deadline", _MOMENT, nullable=False),
    Index("warmuprequest_deadline", "deadline"),
)

WARM_UP_ANSWER = Table(
    "warmupanswer",
    METADATA,
    Column("request_id", ForeignKey("warmuprequest.id", ondelete="CASCADE"), primary_key=True),
    Column("instance", Text, primary_key=True),
    Column("answered", SmallInteger, nullable=False),
    Column("seconds", ARRAY(Double), nullable=False, server_default=text("'{}'")),
    Column("problem", Text, nullable=False, server_default=text("''")),
    Column("scores", ARRAY(Double), nullable=False, server_default=text("'{}'")),
    Column("answered_at", _MOMENT, nullable=False, server_default=_NOW),
)

ROLLOUT = Table(
    "rollout",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("model_name", String(255), nullable=False),
    Column("champion_version", ForeignKey("modelversion.id"), nullable=False),
    Column("challenger_version", ForeignKey("modelversion.id"), nullable=False),
    Column("plan", JSONB, nullable=False),
    Column("phase", String(20), nullable=False, server_default="PROGRESSING"),
    Column("step", Integer, nullable=False, server_default=_ZERO),
    Column("salt", String(255)),
    Column("reason", Text),
    Column("started_by", Text, nullable=False, server_default=_WHO),
    Column("started_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("step_started_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("finished_at", _MOMENT),
    Column("state", JSONB, nullable=False, server_default=_EMPTY),
    Column("revision", BigInteger, nullable=False, server_default=_ZERO),
    Column("slow_us", BigInteger),
    Column("salt_before", String(255)),
    Column("announced_at", _MOMENT),
    Column("kind", String(20), nullable=False, server_default="rollout"),
    Column("guard_id", BigInteger),
    Index("rollout_to_be_announced", "id", postgresql_where=text("announced_at IS NULL")),
    Index(
        "rollout_one_open_per_model",
        "model_name",
        unique=True,
        postgresql_where=text("phase IN ('PROGRESSING', 'WAITING', 'PROMOTING') AND guard_id IS NULL"),
    ),
)

ROLLOUT_EVENT = Table(
    "rolloutevent",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("rollout_id", ForeignKey("rollout.id", ondelete="CASCADE"), nullable=False),
    Column("at", _MOMENT, nullable=False, server_default=_NOW),
    Column("step", Integer, nullable=False),
    Column("phase", String(20), nullable=False),
    Column("verdict", String(20)),
    Column("reason", Text, nullable=False),
    Column("evidence", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    Column("inputs", JSONB, nullable=False, server_default=_EMPTY),
    Column("thresholds", JSONB, nullable=False, server_default=_EMPTY),
    Column("code_version", Text, nullable=False),
    Column("actor", Text, nullable=False, server_default=_WHO),
    Index("rolloutevent_rollout_id_id_idx", "rollout_id", "id"),
)

EXPERIMENT = Table(
    "experiment",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("model_name", String(255), nullable=False),
    Column("name", String(100), nullable=False),
    Column("champion_version", ForeignKey("modelversion.id"), nullable=False),
    Column("challenger_version", ForeignKey("modelversion.id"), nullable=False),
    Column("metric", String(100), nullable=False),
    Column("plan", JSONB, nullable=False, server_default=_EMPTY),
    Column("result", JSONB(none_as_null=True)),
    Column("created_by", Text, nullable=False, server_default=_WHO),
    Column("started_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("ended_at", _MOMENT),
    Column("ended_by", Text),
    UniqueConstraint("model_name", "name", name="experiment_model_name_name_key"),
)

OUTCOME_EVENT = Table(
    "outcomeevent",
    METADATA,
    Column("event_id", String(255), primary_key=True),
    Column("model_name", String(255), nullable=False),
    Column("entity_id", String(255)),
    Column("prediction_id", Uuid),
    Column("name", String(100), nullable=False),
    Column("value", Double, nullable=False),
    Column("occurred_at", _MOMENT, nullable=False),
    Column("received_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("sent_as", String(255)),
    CheckConstraint("entity_id IS NOT NULL OR prediction_id IS NOT NULL"),
    Index("outcomeevent_model_name_name_entity_id_occurred_at_idx", "model_name", "name", "entity_id", "occurred_at"),
    Index("outcomeevent_received_at", "received_at"),
    Index("outcomeevent_sent_as", "model_name", "sent_as", unique=True, postgresql_where=text("sent_as IS NOT NULL")),
)

ALERT_OUTBOX = Table(
    "alertoutbox",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("dedup_key", String(255), nullable=False),
    Column("action", String(20), nullable=False),
    Column("severity", String(20), nullable=False),
    Column("model_name", String(255)),
    Column("payload", JSONB, nullable=False),
    Column("created_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("next_attempt_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("attempts", Integer, nullable=False, server_default=_ZERO),
    Column("last_error", Text),
    Column("delivered_at", _MOMENT),
    Index("alertoutbox_pending", "next_attempt_at", postgresql_where=text("delivered_at IS NULL")),
    Index("alertoutbox_of_incident", "dedup_key", "id", postgresql_where=text("action <> 'change'")),
)

SUBSCRIPTION = Table(
    "subscription",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("receiver", String(63), nullable=False),
    Column("format", String(20), nullable=False, server_default="cloudevents"),
    Column("model_name", String(255)),
    Column("kinds", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
    Column("severity", String(20), nullable=False, server_default="info"),
    Column("created_by", Text, nullable=False, server_default=text("understudy_actor()")),
    Column("created_at", _MOMENT, nullable=False, server_default=_NOW),
)

SUBSCRIPTION_AUDIT = Table(
    "subscriptionaudit",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("changed_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("actor", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("reason", Text),
    Column("name", String(63), nullable=False),
    Column("model_name", String(255)),
    Column("action", String(10), nullable=False),
    Column("before", JSONB(none_as_null=True)),
    Column("after", JSONB(none_as_null=True)),
    Index("subscriptionaudit_changed_at", "changed_at"),
)
Index("subscriptionaudit_model_name_id_idx", SUBSCRIPTION_AUDIT.c.model_name, SUBSCRIPTION_AUDIT.c.id.desc())

NOTIFICATION = Table(
    "notification",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("subscription_id", BigInteger, nullable=False),
    Column("event_id", Uuid, nullable=False),
    Column("kind", String(100), nullable=False),
    Column("severity", String(20), nullable=False),
    Column("model_name", String(255)),
    Column("payload", JSONB, nullable=False),
    Column("created_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("next_attempt_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("attempts", Integer, nullable=False, server_default=_ZERO),
    Column("last_error", Text),
    Column("delivered_at", _MOMENT),
    Index(
        "notification_waiting",
        "subscription_id",
        "model_name",
        "id",
        postgresql_where=text("delivered_at IS NULL AND next_attempt_at < 'infinity'"),
    ),
    Index("notification_created_at", "created_at"),
    Index(
        "notification_delivered",
        "subscription_id",
        "delivered_at",
        postgresql_where=text("delivered_at IS NOT NULL"),
    ),
    Index(
        "notification_given_up",
        "subscription_id",
        postgresql_where=text("delivered_at IS NULL AND next_attempt_at = 'infinity'"),
    ),
)

PREDICTION_WINDOW = Table(
    "predictionwindow",
    METADATA,
    Column("model_version_id", ForeignKey("modelversion.id", ondelete="CASCADE"), primary_key=True),
    Column("window_start", _MOMENT, primary_key=True),
    Column("role", String(20), primary_key=True),
    Column("rollout_id", BigInteger, primary_key=True, server_default=_ZERO),
    Column("policy_generation", BigInteger, primary_key=True),
    Column("shipper", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True, server_default=_ZERO),
    Column("calls", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("counts", JSONB, nullable=False),
    Index("predictionwindow_window_start_idx", "window_start"),
    Index("predictionwindow_of_rollout", "rollout_id", "window_start", postgresql_where=text("rollout_id <> 0")),
)

DRIFT_HOUR = Table(
    "drifthour",
    METADATA,
    Column("model_version_id", ForeignKey("modelversion.id", ondelete="CASCADE"), primary_key=True),
    Column("subject", String(255), primary_key=True),
    Column("hour_start", _MOMENT, primary_key=True),
    Column("row_count", BigInteger, nullable=False),
    Column("sums", JSONB, nullable=False),
    Index("drifthour_hour_start_idx", "hour_start"),
)

MONITOR_LEASE = Table(
    "monitorlease",
    METADATA,
    Column("name", String(40), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("renewed_at", _MOMENT, nullable=False, server_default=_NOW),
)

LOG_ARCHIVE = Table(
    "logarchive",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("partition_name", Text, nullable=False),
    Column("month_start", _MOMENT, nullable=False),
    Column("month_end", _MOMENT, nullable=False),
    Column("location", Text, nullable=False),
    Column("state", String(20), nullable=False, server_default="exporting"),
    Column("attempt", Integer, nullable=False, server_default=_ZERO),
    Column("row_count", BigInteger),
    Column("fingerprint", Text),
    Column("detached_as", Text),
    Column("began_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("changed_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("drop_after", _MOMENT),
    Column("dropped_by", Text),
    Index("logarchive_one_open", "partition_name", unique=True, postgresql_where=text("state <> 'archived'")),
)

LOG_ARCHIVE_FILE = Table(
    "logarchivefile",
    METADATA,
    Column("archive_id", ForeignKey("logarchive.id", ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("model_name", String(255), nullable=False),
    Column("day", Date, nullable=False),
    Column("row_count", BigInteger),
    Column("byte_count", BigInteger),
    Column("sha256", CHAR(64)),
)

ARCHIVE_STATUS = Table(
    "archivestatus",
    METADATA,
    Column("is_only", Boolean, primary_key=True, server_default=_TRUE),
    Column("succeeded_at", _MOMENT, nullable=False),
)

ENTITY_ERASURE = Table(
    "entityerasure",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("model_name", String(255)),
    Column("digest", CHAR(64), nullable=False),
    Column("salt", LargeBinary),
    Column("began_at", _MOMENT, nullable=False, server_default=_NOW),
    Column("erased_before", _MOMENT, nullable=False),
    Column("finished_at", _MOMENT),
    Column("actor", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("reason", Text),
    Column("log_rows", BigInteger, nullable=False, server_default=_ZERO),
    Column("kept_rows", BigInteger, nullable=False, server_default=_ZERO),
    Column("archived_rows", BigInteger, nullable=False, server_default=_ZERO),
    Column("files", BigInteger, nullable=False, server_default=_ZERO),
    Column("outcomes", BigInteger, nullable=False, server_default=_ZERO),
    Column("dead_letters", BigInteger, nullable=False, server_default=_ZERO),
    Column("searched", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("resumed_by", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("lake_rows", BigInteger, nullable=False, server_default=_ZERO),
    Column("lake_files", BigInteger, nullable=False, server_default=_ZERO),
    Index("entityerasure_digest", "digest"),
    Index(
        "entityerasure_one_open",
        "digest",
        text("coalesce(model_name, '')"),
        unique=True,
        postgresql_where=text("finished_at IS NULL"),
    ),
)

ENTITY_ERASURE_FILE = Table(
    "entityerasurefile",
    METADATA,
    Column("erasure_id", ForeignKey("entityerasure.id"), primary_key=True),
    Column("archive_id", BigInteger, primary_key=True),
    Column("old_key", Text, primary_key=True),
    Column("new_key", Text, nullable=False),
)

ENTITY_ERASURE_SWAP = Table(
    "entityerasureswap",
    METADATA,
    Column("erasure_id", ForeignKey("entityerasure.id", ondelete="CASCADE"), primary_key=True),
    Column("archive_id", BigInteger, primary_key=True),
    Column("old_key", Text, primary_key=True),
    Column("new_key", Text, nullable=False),
    Column("old_byte_count", BigInteger, nullable=False),
    Column("old_sha256", CHAR(64), nullable=False),
    Column("longer", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("swapped_at", _MOMENT, nullable=False, server_default=_NOW),
)

ERASURE_SECRET = Table(
    "erasuresecret",
    METADATA,
    Column("is_only", Boolean, primary_key=True, server_default=_TRUE),
    Column("secret", LargeBinary, nullable=False),
)

CACHE_SECRET = Table(
    "cachesecret",
    METADATA,
    Column("is_only", Boolean, primary_key=True, server_default=_TRUE),
    Column("secret", LargeBinary, nullable=False),
)
