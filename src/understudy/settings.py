"""Settings: the environment as one frozen value, which only the composition root and the entry points read."""

import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from understudy.core.connection_urls import http_problem, postgres_problem, redis_problem
from understudy.core.loading.artifact_address import parse_stores
from understudy.core.loading.giving_way import Transition
from understudy.core.loading.oci_address import parse_logins, parse_registries
from understudy.core.routing.proxy_identity import parse_networks, parse_roles
from understudy.core.routing.token_grants import parse_grants
from understudy.core.upstream.endpoint_rules import EndpointRules, parse_rules
from understudy.core.upstream.receivers import parse_receivers, parse_sources, parse_tokens, signing_key

FILE_SUFFIX = "_FILE"
"""``DATABASE_URL_FILE`` names a file that has the value of ``DATABASE_URL``; every secret has such a variable."""
MAX_SECRET_BYTES = 65_536
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
_HOST_NAME = re.compile(r"[a-z0-9_*-]+(\.[a-z0-9_*-]+)*")
URL_CHECKS: Mapping[str, Callable[[str], str | None]] = {
    "database_url": postgres_problem,
    "log_database_url": postgres_problem,
    "control_database_url": postgres_problem,
    "retention_database_url": postgres_problem,
    "redis_url": redis_problem,
    "feature_redis_url": redis_problem,
    "alert_webhook_url": http_problem,
}
"""What is wrong with a URL that may hold a password, by setting. No error of a client, which may repeat a part of the
password, is reached: such a URL is refused here."""


_ORIGIN = re.compile(
    r"https?://[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?|https?://\[[0-9a-f:.]{2,45}\](:[0-9]{1,5})?"
)
MAX_ORIGINS = 100


def parse_origins(text: str) -> tuple[str, ...]:
    """Read the setting ``UNDERSTUDY_CORS_ORIGINS``, origins by commas as browsers send them, or ``*``.

    Raises:
        ValueError: Naming the entry that is none, or saying that there are too many.
    """
    origins = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if origins == ("*",):
        return origins
    if len(origins) > MAX_ORIGINS:
        raise ValueError(f"{len(origins)} origins; at most {MAX_ORIGINS}")
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is no origin: scheme, host in lower case and perhaps a port, or * alone")
    return origins


class Unusable(NamedTuple):
    """Stands for a secret whose file cannot be used, until validation reports it under the variable's name."""

    why: str


def variable_of(field_name: str, field: FieldInfo) -> str:
    """Return the environment variable of a field."""
    return field.validation_alias if isinstance(field.validation_alias, str) else f"UNDERSTUDY_{field_name.upper()}"


def is_secret(field: FieldInfo) -> bool:
    """Whether a field holds a secret, so that a file may give it."""
    return SecretStr in (field.annotation, *get_args(field.annotation))


def parse_host_names(text: str) -> tuple[str, ...]:
    """Read the setting ``UNDERSTUDY_HOST_NAMES``, names by commas; ``*`` stands for any characters.

    Raises:
        ValueError: Naming the entry that is none.
    """
    names = tuple(part.strip().rstrip(".").lower() for part in text.split(",") if part.strip())
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no host name, which has neither scheme nor port")
    return names


def _read_secret(variable: str, path: Path) -> str | Unusable:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as problem:
        return Unusable(f"the file that {variable} names cannot be read: {problem.strerror}")
    if len(content) > MAX_SECRET_BYTES:
        return Unusable(f"the file that {variable} names is longer than {MAX_SECRET_BYTES} bytes")
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        return Unusable(f"the file that {variable} names is not UTF-8")
    return text or Unusable(f"the file that {variable} names is empty")


def environment_values(fields: Mapping[str, FieldInfo], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the environment says of settings, by the names under which they are validated.

    A secret may be in a mounted file instead: many tools can read a process's environment, only its user the file. One
    that is in both is refused: neither silently wins. Names of variables may be in lower case.
    """
    given = {name.upper(): value for name, value in environment.items()}
    values: dict[str, Any] = {}
    for field_name, field in fields.items():
        variable = variable_of(field_name, field)
        path = given.get(variable + FILE_SUFFIX) if is_secret(field) else None
        if path is not None and variable in given:
            values[_key_of(field_name, field)] = Unusable(f"set {variable} or {variable}{FILE_SUFFIX}, not both")
        elif path is not None:
            values[_key_of(field_name, field)] = _read_secret(variable + FILE_SUFFIX, Path(path))
        elif variable in given:
            values[_key_of(field_name, field)] = given[variable]
    return values


def _is_private(url: str) -> bool:
    """Whether a URL has no login, and no machine on the way can change what it answers."""
    parts = urlsplit(url)
    return (
        http_problem(url) is None
        and "@" not in parts.netloc
        and (parts.scheme == "https" or parts.hostname in LOOPBACK_HOSTS)
    )


def _key_of(field_name: str, field: FieldInfo) -> str:
    return field.validation_alias if isinstance(field.validation_alias, str) else field_name


class Settings(BaseModel):
    """What an operator may set, each as ``UNDERSTUDY_<NAME>``; ``DATABASE_URL`` and ``REDIS_URL`` have no prefix.

    What is given by name precedes the environment.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, hide_input_in_errors=True)

    def __init__(self, **given: Any) -> None:
        fields = type(self).model_fields
        named = {_key_of(name, field) for name, field in fields.items() if name in given}
        read = environment_values(fields, os.environ)
        super().__init__(**{key: value for key, value in read.items() if key not in named}, **given)

    database_url: SecretStr = Field(
        default=SecretStr("postgresql://127.0.0.1:5432/understudy"), validation_alias="DATABASE_URL"
    )
    """Postgres 15 to 18: registry, policies, prediction log."""
    log_database_url: SecretStr | None = None
    """The same database for the log's rows, which may go through a pooler in transaction mode (pgbouncer); without it
    they go to ``DATABASE_URL``."""
    control_database_url: SecretStr | None = None
    """The same database under a login that may change policies and rollouts (role ``understudy_engineer``), for the
    control-plane calls of callers with scope ``operate``; without it the proxy uses the login of ``DATABASE_URL``."""
    retention_database_url: SecretStr | None = None
    """The same database under a login that may delete (role ``understudy_retention``), for the monitor's deletion of
    old rows; without it the monitor deletes as the login of ``DATABASE_URL``."""
    redis_url: SecretStr | None = Field(default=None, validation_alias="REDIS_URL")
    """Redis or Valkey for the shared prediction cache; without it only the in-process cache is used."""
    state_dir: Path = Path(".understudy")
    """Folder of the spool and of the policy snapshot; must survive a restart of the process."""

    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int = Field(default=0, ge=0, le=65_535)
    """Port of callers that speak gRPC, at ``host`` too; 0: the proxy has none."""
    host_names: str | None = None
    """Further names, by commas, that callers may put into ``Host`` (``predict.internal,*.shop.example``), beside
    addresses, ``localhost`` and ``host``. Without it any name is taken, unless the proxy serves this machine only and
    asks for no key."""
    cors_origins: str | None = None
    """Origins, by commas, whose pages may call the proxy from browsers (``https://shop.example``), or ``*`` for all.
    Without it the proxy answers no preflight (CORS), and pages of other sites read no answer."""
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 9090
    workers: int = Field(default=1, ge=1, le=256)
    """1: one uvicorn. More: gunicorn with uvicorn-worker."""
    tls_cert: Path | None = None
    """File with the proxy's certificate and its intermediate ones; with ``tls_key`` callers speak TLS."""
    tls_key: Path | None = Field(default=None, validate_default=True)
    """File with the certificate's private key."""
    auth: bool | None = None
    """Whether predict and read calls need a key; by default yes, unless ``host`` is a loopback address."""
    key_calls_per_second: float | None = Field(default=None, gt=0)
    """Rate limit of each key (or of all keys of one tenant) at this proxy; a key's own rate takes precedence. Without
    it there is no limit."""
    key_bytes_per_second: float | None = Field(default=None, gt=0)
    """The same limit for the bytes of bodies and log rows."""
    oidc_issuer: str | None = Field(default=None, min_length=1, max_length=1_000)
    """The issuer (``iss``) whose tokens the proxy accepts beside keys; without it none are."""
    oidc_audience: str | None = Field(default=None, min_length=1, max_length=1_000, validate_default=True)
    """What ``aud`` of a token has to name: this proxy, as the issuer knows it."""
    oidc_jwks_url: str | None = Field(default=None, validate_default=True)
    """Where the issuer publishes its keys (``jwks_uri`` of its discovery document): ``https``, or ``http`` on this
    machine."""
    oidc_scopes: str = "{}"
    """Which claims of a token give which scopes: ``{"groups": {"ml-oncall": ["read", "operate:fraud"]}}``."""
    oidc_actor_claim: str = Field(default="sub", min_length=1, max_length=100)
    """The claim that the audit names as actor, behind ``oidc:``."""
    oidc_algorithms: str = "RS256,ES256,EdDSA"
    """How tokens may be signed: some of these."""
    oidc_leeway_seconds: float = Field(default=60.0, ge=0, le=300)
    """How far the issuer's clock may be from the proxy's."""
    oidc_max_token_seconds: float = Field(default=86_400.0, gt=0, le=2_678_400)
    """Longest life of a token that is accepted: nothing but its end revokes it."""
    docs: bool | None = None
    """Whether /docs and /openapi.json are served; by default only when ``host`` is a loopback address."""

    version_headers: bool = True
    """Whether answers name the version and role in headers, which callers outside the organisation may not be meant to
    see."""
    without_entity: Literal["per_call", "refuse"] = "per_call"
    """What becomes of a call in another protocol that names no entity: it is an entity of its own, or is refused."""
    named_version: Literal["forced", "routed"] = "forced"
    """What a version in the path of such a call means: it answers, or it must exist and the route decides."""
    default_model: str | None = None
    """The model that ``/invocations`` asks when a call names none; by default the only one that its caller may ask."""
    body_limit_bytes: int = Field(default=1_048_576, ge=1_024)
    rank_body_limit_bytes: int = Field(default=4_194_304, ge=1_024)
    """The limit of a rank call's body: 2,000 treatments of a hundred named values each."""
    receive_seconds: float = Field(default=10.0, gt=0)
    """Longest time for a request's headers to arrive, and then its body (against slow-loris clients); the slow-reader
    guard's time-out too."""
    max_connections: int | None = Field(default=None, ge=1)
    """Connections of callers that a process (each worker) holds; by default what its descriptor limit leaves beside a
    reserve."""
    max_connections_per_address: int | None = Field(default=None, ge=1)
    """The same of one address; by default half of them."""
    max_memory_bytes: int | None = Field(default=None, ge=0)
    """Resident memory of a process from which on it refuses new connections and closes idle ones; by default 95 % of
    the container's limit, divided by the workers. 0: never."""
    max_lag_seconds: float = Field(default=1.0, ge=0)
    """Lag of the event loop, for a second or longer, from which on new connections are refused. 0: never."""
    drain_seconds: float = Field(default=3.0, ge=0)
    """Graceful shutdown: longest wait of each of its phases."""

    cache_key: SecretStr | None = Field(default=None, min_length=32)
    """Secret that authenticates values of the shared cache, the same for all proxies of one database and for no others;
    without it the one in the registry (``CacheSecret``)."""
    memory_cache_bytes: int = Field(default=32 * 1_048_576, ge=0)
    """In-process prediction cache; 0 turns it off."""
    redis_timeout_seconds: float = Field(default=0.01, gt=0)
    feature_timeout_seconds: float = Field(default=0.05, gt=0)
    feature_redis_url: SecretStr | None = None
    """Online features as Redis hashes ``features:{model}:{entity_id}``."""
    feature_table: str | None = None
    """Online features as a Postgres table (or view) with columns model_name, entity_id, features (JSONB)."""

    backend_concurrency: int = Field(default=2, ge=1)
    """Calls of one version in flight before rows wait to be batched."""
    backend_gap_seconds: float = Field(default=0.002, ge=0)
    """Longest wait of a row for its batch; 0 sends every row at once."""
    backend_batch_rows: int = Field(default=128, ge=1)
    backend_queue_rows: int = Field(default=4_096, ge=1)
    """Rows of one version that may wait; load shedding refuses more with 503."""
    backend_calls: int = Field(default=128, ge=1)
    """Calls of one version in flight, per worker."""
    backend_wait_seconds: float = Field(default=0.2, gt=0)
    """Longest wait of a row while that many calls are in flight, then 503: without the wait, immediate retries would
    become most of the load."""
    endpoint_allow: str | None = None
    """Networks, addresses and names (``10.0.0.0/8,*.models.internal``) that model servers may have; checked again on
    the resolved address before each connection. Without it: every address that is not forbidden to all."""
    backend_ca: Path | None = None
    """File with the authorities of model servers' certificates, for versions whose ``backend.tls`` is true."""
    grpc_client: Literal["asyncio", "grpcio"] = "asyncio"
    """What calls model servers over gRPC: our own client in the event loop's thread, or gRPC's library."""
    hedge_ratio: float = Field(default=0.05, ge=0, le=0.5)
    """Most hedged requests for each call to a version with several replicas; 0 turns hedging off."""
    discovery_seconds: float = Field(default=5.0, ge=0.5, le=300)
    """Between two questions for the addresses of a name, of versions whose ``backend.discover`` is true."""
    challenger_budget_ratio: float = Field(default=0.4, gt=0, le=1)
    """Share of the deadline that a challenger may use before the champion answers instead."""
    shadow_limit: int = Field(default=64, ge=0)
    """Shadow calls in flight; more are dropped and counted."""
    shadow_timeout_seconds: float = Field(default=0.5, gt=0)

    policy_poll_seconds: float = Field(default=2.0, gt=0)
    policy_heartbeat_seconds: float = Field(default=2.0, gt=0)
    database_timeout_seconds: float = Field(default=5.0, gt=0)

    spool_limit_bytes: int = Field(default=256 * 1_048_576, ge=65_536)
    """Bytes of unshipped rows on disk, per worker; when full, the proxy answers on, drops new rows and counts them."""
    spool_segment_bytes: int = Field(default=8 * 1_048_576, ge=4_096)
    spool_sync_seconds: float = Field(default=1.0, gt=0)
    """Longest time between two fdatasync: the rows that a power cut (not a crash of the process) may lose. With
    ``spool_sync`` ``answer`` the longest wait of an answer for its sync."""
    spool_sync: Literal["interval", "answer"] = "interval"
    """``answer``: an answer leaves when its row is synced, by one fdatasync for all that wait for it."""
    spool_full: Literal["drop", "refuse"] = "drop"
    """What becomes of a call whose row cannot be written: answered without a row, or refused with E508."""
    log_batch_rows: int = Field(default=5_000, ge=1)
    log_interval_seconds: float = Field(default=0.2, gt=0)
    log: str = "postgres"
    """Where rows of the prediction log go: ``postgres``, ``postgres+lake`` for an Apache Iceberg table as well, or
    ``lake`` for that alone: then Postgres has windows, and the rows with sampled inputs."""
    lake_url: str | None = Field(default=None, min_length=1, validate_default=True)
    """Where the files of the lake's table go: ``s3://bucket/prefix``, or a folder that proxies and monitor share.
    Credentials are read from the environment (``AWS_ACCESS_KEY_ID`` and so on), never from it."""
    lake_endpoint: str | None = Field(default=None, pattern=r"^https?://[^/@?#]+$")
    """Endpoint of an S3-compatible store that is not Amazon's, such as ``http://minio:9000``."""
    log_reads: Literal["postgres", "lake"] = Field(default="postgres", validate_default=True)
    """Where A/B and shadow reports, baselines of scores, ``log query`` and ``log show`` read calls. ``lake`` takes that
    work off Postgres, and sees a call a minute and a half later; with ``UNDERSTUDY_LOG=lake`` it is always that."""
    lake_interval_seconds: float = Field(default=60.0, gt=0)
    """How long rows gather in the spool for a file of the lake, at most; what one is killed with waits on its disk."""
    lake_file_bytes: int = Field(default=16 * 1_048_576, ge=4_096)
    """Bytes of the spool that make a file before that; the file itself has about a third."""

    lake_days: int | None = Field(default=None, ge=1)
    """After how many days, in UTC, rows of the lake are dropped; without it they stay."""

    instance: str = Field(default_factory=socket.gethostname)
    """This machine's name in ProxyInstance and MonitorLease; the process id is added."""

    monitor_tick_seconds: float = Field(default=5.0, gt=0)
    """Time between two ticks of the monitor, which judge rollouts and send waiting alerts."""
    idle_unload_seconds: float = Field(default=1_800.0, ge=0)
    """How long agents keep a version loaded that nothing wants, after its last call; 0: they unload it at once."""
    replica_concurrency: int = Field(default=2, ge=1)
    """Calls that one model server answers at once, for versions that may be on more or fewer servers."""
    monitor_metrics_port: int = 9091
    guard_days: float = Field(default=1.0, gt=0, le=30)
    """After how long the guard of a split ends and the next one begins, with new evidence."""
    window_days: int = Field(default=35, ge=1)
    """How long windows are kept; those of an open rollout stay longer, and drift keeps sums by the hour."""
    metric_days: int = Field(default=90, ge=1)
    """How long the rows of PredictionMetric are kept (some ten a minute for each active version, and three for each
    metric that the plan of an open rollout names), and the events of finished rollouts."""
    outcome_days: int = Field(default=400, ge=1)
    """How long outcome events are kept, and so their idempotency: one that is sent again after that is stored again."""
    input_sample_days: int = Field(default=30, ge=1)
    """How long logged inputs are kept; the rows of their calls stay in the log."""
    archive_url: str | None = Field(default=None, min_length=1)
    """Where old months of the prediction log go: ``s3://bucket/prefix``, or a folder. Credentials are read from the
    environment (``AWS_ACCESS_KEY_ID`` and so on), never from it."""
    archive_after_days: int = Field(default=30, ge=1, le=3_650)
    """How long after its end a month stays in Postgres; with logged inputs at least as long as those are kept."""
    archive_endpoint: str | None = Field(default=None, pattern=r"^https?://[^/@?#]+$")
    """Endpoint of an S3-compatible store that is not Amazon's, such as ``http://minio:9000``."""
    environment: str = Field(default="dev", pattern=r"^[A-Za-z0-9_.-]{1,40}$")
    """This installation's name: part of every alert's dedup key, so that two installations never share an incident."""
    pagerduty_routing_key: SecretStr | None = Field(default=None, min_length=1)
    """Integration key of the PagerDuty service that gets the alerts."""
    alert_webhook_url: SecretStr | None = Field(default=None, min_length=1)
    """Where alerts are posted as JSON; secret, since it may carry a token."""
    receivers: SecretStr | None = Field(default=None, min_length=1)
    """Receivers of notifications: ``name=https://host/path``, separated by spaces or lines. Subscriptions name them;
    secret, since an address may carry a token."""
    gates: SecretStr | None = Field(default=None, min_length=1)
    """Gates of rollouts over HTTP: ``name=https://host/path``, separated by spaces or lines. Plans name them; secret,
    since an address may carry a token."""
    gate_secret: SecretStr | None = Field(default=None, min_length=1, validate_default=True)
    """What questions to gates are signed with, as Standard Webhooks has it: ``whsec_`` and 24 to 64 bytes in base64."""
    metric_sources: SecretStr | None = Field(default=None, min_length=1)
    """Prometheus APIs for metrics of plans: ``name=https://host:9090``, separated by spaces or lines. Plans name them;
    secret, since an address may carry a password."""
    metric_source_tokens: SecretStr | None = Field(default=None, min_length=1)
    """Tokens of these, sent as ``authorization: Bearer``: ``name=token``, separated by spaces or lines."""
    guard_metrics: SecretStr | None = Field(default=None, min_length=1)
    """Metrics that guards judge by, as JSON by model: ``{"churn": [metric, …], "*": […]}``, each as a plan names it.
    With a file like a secret's, since queries are long."""
    judges: SecretStr | None = Field(default=None, min_length=1)
    """Judges of rollouts over HTTP: ``name=https://host/path``, separated by spaces or lines. Plans name them; secret,
    since an address may carry a token."""
    judge_tokens: SecretStr | None = Field(default=None, min_length=1)
    """Tokens of these, sent as ``authorization: Bearer``: ``name=token``, separated by spaces or lines."""
    guard_judges: SecretStr | None = Field(default=None, min_length=1)
    """Judges of guards, as JSON by model: ``{"churn": {"name": "quality", …}, "*": …}``, each as a plan names it. With
    a file, as ``guard_metrics``."""
    runbooks_url: str | None = Field(default=None, pattern=r"^https?://[^\s@]+$", max_length=1_000)
    """URL of the published ``docs/runbooks``: each alert of the monitor, and the console's pages, then link there."""

    server_name: str | None = Field(default=None, min_length=1, max_length=255)
    """The name of the model server that an agent is for; by default ``instance``. It has one agent at a time."""
    server_group: str | None = Field(default=None, min_length=1, max_length=255)
    """The group of that server: versions are loaded onto all servers of a group."""
    server_target: str | None = Field(default=None, pattern=r"^[^\s/@]+:[0-9]{1,5}$", max_length=255)
    """``host:port`` of that server, as proxies reach it."""
    server_control: str | None = Field(default=None, pattern=r"^[^\s/@]+:[0-9]{1,5}$", max_length=255)
    """``host:port`` of that server's control, as the agent reaches it."""
    server_kind: Literal["understudy", "mlserver", "triton", "torchserve", "tfserving"] = "understudy"
    """What that server is, which says how a model's files are to lie in its repository."""
    server_models_dir: str | None = Field(default=None, pattern="^/", max_length=1_000)
    """Folder ``models`` of the stage as a TensorFlow Serving sees it; by default by the agent's own path."""
    server_memory_bytes: int | None = Field(default=None, ge=1)
    """What that server may take of its machine's or container's memory; without it versions are loaded whatever they
    take."""
    server_transition: Transition = Transition.AVAILABILITY
    """What becomes of a version in the way of the next one of its model, where that server has no room for both."""
    server_pid_file: Path | None = None
    """File with the number of that server's process, whose memory the agent measures; without it memory is
    estimated."""
    server_drain_seconds: float = Field(default=60.0, gt=0, le=3_600)
    """Longest time that ``understudy server drain --self``, and the end of the server's pod, wait until no proxy can
    call that server."""
    stage_dir: Path = Path(".understudy/stage")
    """Folder of an agent's artifacts: those that were fetched in ``artifacts``, those that the server may load in
    ``models``, which is its ``--repository``."""
    artifact_root: Path | None = None
    """Folder that artifacts must lie below, for an agent to read them."""
    artifact_stores: str | None = None
    """Beginnings of the addresses of stores that an agent may read artifacts from, by commas:
    ``s3://models/visits,oci://registry.internal/models``. Without it: of none."""
    artifact_endpoint: str | None = Field(default=None, pattern=r"^https?://[^/@?#]+$")
    """Endpoint of the S3-compatible store of artifacts that is not Amazon's, such as ``http://minio:9000``."""
    artifact_region: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{1,64}$")
    """Region of the buckets of artifacts; by default ``AWS_REGION``."""
    oci_logins: SecretStr | None = Field(default=None, min_length=1)
    """Logins of the OCI registries that artifacts are read from: the content of a ``config.json`` of Docker."""
    oci_plain_http: str | None = None
    """OCI registries that are asked without TLS, by commas: ``registry.internal:5000``. Those of this machine are."""
    artifact_bytes: int = Field(default=20 * 1024**3, ge=1)
    """Bytes of one artifact, at most, unpacked."""
    artifact_seconds: float = Field(default=600.0, gt=0)
    """Longest time that one artifact takes to be fetched, or to be verified on the stage."""
    validation: Literal["cases", "robustness", "load"] = "cases"
    """What an agent asks of a version that its server has loaded, before callers may: the cases of its artifact; hard
    calls, at the ends of what its schema permits, as well; and calls under load as well."""
    validation_load_seconds: float = Field(default=10.0, gt=0, le=300)
    """How long that load lasts."""
    agent_metrics_port: int = 9092

    otel_sdk_disabled: str | None = Field(default=None, validation_alias="OTEL_SDK_DISABLED")
    """``true``: no traces, whatever else is set. This and the next ones are OpenTelemetry's own variables, which other
    programs read too: ``bootstrap.tracing`` checks them, not this module."""
    otel_traces_exporter: str | None = Field(default=None, validation_alias="OTEL_TRACES_EXPORTER")
    """``otlp``, ``console`` or ``none``; without it ``otlp`` when an endpoint is set, else ``none``."""
    otel_exporter_otlp_endpoint: str | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """The collector's address; ``/v1/traces`` is added to it."""
    otel_exporter_otlp_traces_endpoint: str | None = Field(
        default=None, validation_alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    )
    """The collector's whole URL for traces; it takes precedence."""
    otel_exporter_otlp_protocol: str | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_PROTOCOL")
    otel_exporter_otlp_traces_protocol: str | None = Field(
        default=None, validation_alias="OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
    )
    otel_exporter_otlp_headers: SecretStr | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_HEADERS")
    """``name=value``, separated by commas, sent with each batch; secret, since collectors take their keys there."""
    otel_exporter_otlp_traces_headers: SecretStr | None = Field(
        default=None, validation_alias="OTEL_EXPORTER_OTLP_TRACES_HEADERS"
    )
    """The same; it takes precedence."""
    otel_exporter_otlp_timeout: str | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_TIMEOUT")
    """Time-out of one batch, in milliseconds."""
    otel_service_name: str | None = Field(default=None, validation_alias="OTEL_SERVICE_NAME")
    otel_resource_attributes: str | None = Field(default=None, validation_alias="OTEL_RESOURCE_ATTRIBUTES")
    otel_traces_sampler: str | None = Field(default=None, validation_alias="OTEL_TRACES_SAMPLER")
    otel_traces_sampler_arg: str | None = Field(default=None, validation_alias="OTEL_TRACES_SAMPLER_ARG")
    otel_bsp_max_queue_size: str | None = Field(default=None, validation_alias="OTEL_BSP_MAX_QUEUE_SIZE")
    """Spans that may wait for the collector; further ones are dropped and counted."""

    console_host: str = "127.0.0.1"
    console_port: int = 8090
    console_host_names: str | None = None
    """Further names, by commas, that browsers may put into ``Host``, beside addresses, ``localhost`` and
    ``console_host``; as ``host_names`` of the proxy. Without it any name is taken, unless ``console_host`` is a
    loopback address."""
    console_https: bool | None = None
    """Whether browsers reach the console over HTTPS, which something in front of it ends: its cookie is then sent over
    nothing else. By default yes, unless ``console_host`` is a loopback address."""
    console_read_only: bool = False
    """Whether the console only shows: it has no act then, and works with a login that may read alone."""
    console_secret: SecretStr | None = Field(default=None, min_length=32)
    """Secret that signs the sessions of the console; without it a random one, and a restart ends all sessions."""
    console_secret_before: SecretStr | None = Field(default=None, min_length=32)
    """The secret before it, while it is replaced: sessions and forms that it has signed are good still."""
    console_proxy_secret: SecretStr | None = Field(default=None, min_length=32)
    """Secret that a proxy which says who comes sends along, as ``X-Understudy-Proxy-Secret``."""
    console_trusted_proxies: str | None = None
    """Addresses and networks of that proxy, by commas; who comes from elsewhere is not believed."""
    console_identity_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{1,100}$")
    """Header in which it names a person, such as ``X-Forwarded-Email``; needs the two before."""
    console_groups_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{1,100}$")
    """Header in which it names the person's groups, by commas."""
    console_roles: str | None = None
    """Scopes of groups: ``ml-oncall=operate,churn-team=operate:churn,everyone=read``."""

    proxy_url: str | None = Field(default=None, pattern=r"^https?://[^/?#@\s]+/?$")
    """The proxy that ``understudy predict`` calls; by default the state folder's demo, else ``host`` and ``port``.
    Without ``DATABASE_URL`` the commands that a key is enough for go to it, too."""
    credential: SecretStr | None = Field(default=None, min_length=1)
    """The key that ``understudy predict`` and commands over HTTP show, as ``<id>.<secret>``."""
    context: str | None = Field(default=None, min_length=1)
    """The context that commands go to, in the place of the one in use and of ``DATABASE_URL``."""
    contexts: Path | None = None
    """The file of contexts; by default ``understudy/contexts.json`` in ``XDG_CONFIG_HOME`` or ``~/.config``."""

    @field_validator("*", mode="before")
    @classmethod
    def _check_secret(cls, value: Any) -> Any:
        if isinstance(value, Unusable):
            raise ValueError(value.why)  # noqa: TRY004 - pydantic turns only a ValueError into a ValidationError
        return value

    @field_validator(*URL_CHECKS, mode="after")
    @classmethod
    def _check_url(cls, url: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        problem = URL_CHECKS[info.field_name or ""](url.get_secret_value()) if url is not None else None
        if problem is not None:
            raise ValueError(problem)
        return url

    @field_validator("oidc_audience", "oidc_jwks_url", mode="after")
    @classmethod
    def _check_oidc(cls, text: str | None, info: ValidationInfo) -> str | None:
        if (text is None) != (info.data.get("oidc_issuer") is None):
            raise ValueError("UNDERSTUDY_OIDC_ISSUER, _AUDIENCE and _JWKS_URL are set together, or none of them")
        if text is not None and info.field_name == "oidc_jwks_url" and not _is_private(text):
            raise ValueError("expected https://host/path; http:// only on this machine")
        return text

    @field_validator("oidc_scopes", mode="after")
    @classmethod
    def _check_oidc_scopes(cls, text: str) -> str:
        parse_grants(text)
        return text

    @field_validator("oidc_algorithms", mode="after")
    @classmethod
    def _check_oidc_algorithms(cls, text: str) -> str:
        if not text or not set(text.split(",")) <= {"RS256", "ES256", "EdDSA"}:
            raise ValueError("expected some of RS256,ES256,EdDSA")
        return text

    @field_validator("receivers", mode="after")
    @classmethod
    def _check_receivers(cls, text: SecretStr | None) -> SecretStr | None:
        parse_receivers("" if text is None else text.get_secret_value())
        return text

    @field_validator("gates", mode="after")
    @classmethod
    def _check_gates(cls, text: SecretStr | None) -> SecretStr | None:
        parse_receivers("" if text is None else text.get_secret_value(), noun="gate")
        return text

    @field_validator("gate_secret", mode="after")
    @classmethod
    def _check_gate_secret(cls, text: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if text is not None:
            signing_key(text.get_secret_value())
        elif info.data.get("gates") is not None:
            raise ValueError("UNDERSTUDY_GATES needs it, too: no question to a gate is sent without a signature")
        return text

    @field_validator("metric_sources", mode="after")
    @classmethod
    def _check_metric_sources(cls, text: SecretStr | None) -> SecretStr | None:
        parse_sources("" if text is None else text.get_secret_value())
        return text

    @field_validator("metric_source_tokens", mode="after")
    @classmethod
    def _check_metric_source_tokens(cls, text: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        sources = info.data.get("metric_sources")
        if text is not None:
            known = parse_sources("" if sources is None else sources.get_secret_value())
            parse_tokens(text.get_secret_value(), known, "metric source")
        return text

    @field_validator("guard_metrics", mode="after")
    @classmethod
    def _check_guard_metrics(cls, text: SecretStr | None) -> SecretStr | None:
        if text is not None:
            from understudy.core.rollout.guard_limits import parse_guard_metrics  # noqa: PLC0415 - plans, for who sets it

            parse_guard_metrics(text.get_secret_value())
        return text

    @field_validator("judges", mode="after")
    @classmethod
    def _check_judges(cls, text: SecretStr | None) -> SecretStr | None:
        parse_receivers("" if text is None else text.get_secret_value(), noun="judge")
        return text

    @field_validator("judge_tokens", mode="after")
    @classmethod
    def _check_judge_tokens(cls, text: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        judges = info.data.get("judges")
        if text is not None:
            known = "" if judges is None else judges.get_secret_value()
            parse_tokens(text.get_secret_value(), parse_receivers(known, noun="judge"), "judge")
        return text

    @field_validator("guard_judges", mode="after")
    @classmethod
    def _check_guard_judges(cls, text: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if text is not None:
            from understudy.core.rollout.guard_limits import parse_guard_judges  # noqa: PLC0415 - plans, for who sets it

            judges = info.data.get("judges")
            known = "" if judges is None else judges.get_secret_value()
            parse_guard_judges(text.get_secret_value(), parse_receivers(known, noun="judge"))
        return text

    @field_validator("endpoint_allow", mode="after")
    @classmethod
    def _check_rules(cls, text: str | None) -> str | None:
        parse_rules(text or "")
        return text

    @field_validator("host_names", "console_host_names", mode="after")
    @classmethod
    def _check_names(cls, text: str | None) -> str | None:
        parse_host_names(text or "")
        return text

    @field_validator("cors_origins", mode="after")
    @classmethod
    def _check_origins(cls, text: str | None) -> str | None:
        parse_origins(text or "")
        return text

    @field_validator("console_trusted_proxies", mode="after")
    @classmethod
    def _check_networks(cls, text: str | None) -> str | None:
        parse_networks(text or "")
        return text

    @field_validator("console_roles", mode="after")
    @classmethod
    def _check_roles(cls, text: str | None) -> str | None:
        parse_roles(text or "")
        return text

    @field_validator("console_identity_header", mode="after")
    @classmethod
    def _check_identity(cls, header: str | None, info: ValidationInfo) -> str | None:
        is_guarded = info.data.get("console_proxy_secret") and info.data.get("console_trusted_proxies")
        if header is not None and not is_guarded:
            raise ValueError("needs UNDERSTUDY_CONSOLE_PROXY_SECRET and UNDERSTUDY_CONSOLE_TRUSTED_PROXIES")
        return header

    @field_validator("log", mode="after")
    @classmethod
    def _check_log(cls, log: str) -> str:
        if log not in ("postgres", "postgres+lake", "lake"):
            raise ValueError("expected postgres, postgres+lake or lake")
        return log

    @field_validator("lake_url", mode="after")
    @classmethod
    def _check_lake(cls, url: str | None, info: ValidationInfo) -> str | None:
        log = info.data.get("log")
        if url is None and log in ("postgres+lake", "lake"):
            raise ValueError(f"UNDERSTUDY_LOG={log} needs it: s3://bucket/prefix, or a folder")
        return url

    @field_validator("log_reads", mode="after")
    @classmethod
    def _check_reads(cls, reads: str, info: ValidationInfo) -> str:
        if reads == "lake" and info.data.get("lake_url") is None:
            raise ValueError("UNDERSTUDY_LOG_READS=lake needs UNDERSTUDY_LAKE_URL: s3://bucket/prefix, or a folder")
        # Where rows go to the lake alone, there is nothing else to read.
        return "lake" if info.data.get("log") == "lake" else reads

    @field_validator("archive_url", "lake_url", mode="after")
    @classmethod
    def _check_archive(cls, url: str | None) -> str | None:
        if url is not None and "://" in url and ("@" in url or not url.startswith(("s3://", "file:///"))):
            raise ValueError("expected s3://bucket/prefix without credentials, or a folder")
        return url

    @field_validator("artifact_stores", mode="after")
    @classmethod
    def _check_stores(cls, text: str | None) -> str | None:
        parse_stores(text or "")
        return text

    @field_validator("oci_logins", mode="after")
    @classmethod
    def _check_logins(cls, text: SecretStr | None) -> SecretStr | None:
        if text is not None:
            parse_logins(text.get_secret_value())
        return text

    @field_validator("oci_plain_http", mode="after")
    @classmethod
    def _check_registries(cls, text: str | None) -> str | None:
        parse_registries(text or "")
        return text

    @field_validator("tls_cert", "tls_key", "backend_ca", mode="after")
    @classmethod
    def _check_file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError("there is no such file")
        return path

    @field_validator("tls_key", mode="after")
    @classmethod
    def _check_pair(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        cert = info.data.get("tls_cert")
        if "tls_cert" not in info.data:  # the certificate's own check failed
            return key
        if (key is None) != (cert is None):
            raise ValueError("UNDERSTUDY_TLS_CERT and UNDERSTUDY_TLS_KEY belong together: set both, or neither")
        if key is not None and cert is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
            except (OSError, ssl.SSLError) as problem:
                raise ValueError(f"certificate and key cannot be used: {problem}") from None
        return key

    @property
    def endpoint_rules(self) -> EndpointRules:
        """The rules of ``endpoint_allow``."""
        return parse_rules(self.endpoint_allow or "")

    @property
    def has_lake(self) -> bool:
        """Whether the log goes to the lake, as well or alone."""
        return self.log in ("postgres+lake", "lake")

    @property
    def is_lake_alone(self) -> bool:
        """Whether rows go to the lake and not to Postgres."""
        return self.log == "lake"

    @property
    def logging_url(self) -> str:
        """The database URL for the log's rows."""
        return (self.log_database_url or self.database_url).get_secret_value()

    @property
    def control_url(self) -> str:
        """The database URL for changes of policies and rollouts."""
        return (self.control_database_url or self.database_url).get_secret_value()

    @property
    def deleting_url(self) -> str:
        """The database URL for the deletion of old rows."""
        return (self.retention_database_url or self.database_url).get_secret_value()

    @property
    def snapshot_path(self) -> Path:
        """The file of the policies that a proxy read last."""
        return self.state_dir / "policy.json"

    @property
    def spool_dir(self) -> Path:
        """The folder of all workers' spools."""
        return self.state_dir / "spool"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can call the proxy."""
        return self.host in LOOPBACK_HOSTS

    @property
    def is_console_local(self) -> bool:
        """Whether only this machine can reach the console."""
        return self.console_host in LOOPBACK_HOSTS

    @property
    def console_is_https(self) -> bool:
        """Whether browsers reach the console over HTTPS."""
        return self.console_https if self.console_https is not None else not self.is_console_local

    @property
    def needs_key(self) -> bool:
        """Whether callers need a key."""
        return self.auth if self.auth is not None else not self.is_local

    @property
    def shows_docs(self) -> bool:
        """Whether the API's documentation is served."""
        return self.docs if self.docs is not None else self.is_local
