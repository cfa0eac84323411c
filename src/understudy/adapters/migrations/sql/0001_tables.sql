-- The four tables of the first design keep their names and columns (unquoted, so in lower case); the rest is added.
-- Additions to those four either have a default or may be NULL, so that the design's own statements run as written.

CREATE TABLE ModelVersion (
    id                BIGSERIAL    PRIMARY KEY,
    model_name        VARCHAR(255) NOT NULL CHECK (model_name <> ''),
    version           VARCHAR(100) NOT NULL CHECK (version <> ''),
    artifact_path     TEXT         NOT NULL,
    framework         VARCHAR(50)  NOT NULL,
    input_schema      JSONB        NOT NULL,
    metrics           JSONB,
    status            VARCHAR(50)  NOT NULL DEFAULT 'staging'
                      CHECK (status IN ('staging', 'champion', 'challenger', 'shadow', 'retired')),
    deployed_at       TIMESTAMPTZ,
    created_at        TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    protocol          VARCHAR(20)  NOT NULL DEFAULT 'oip' CHECK (protocol IN ('tfserving', 'torchserve', 'oip')),
    artifact_digest   TEXT,
    output_schema     JSONB        NOT NULL DEFAULT '{}',
    backend           JSONB        NOT NULL DEFAULT '{}',
    deterministic     BOOLEAN      NOT NULL DEFAULT TRUE,
    cache_ttl_seconds INT          NOT NULL DEFAULT 300 CHECK (cache_ttl_seconds BETWEEN 0 AND 2592000),
    timeout_ms        INT          NOT NULL DEFAULT 500 CHECK (timeout_ms BETWEEN 1 AND 60000),
    UNIQUE (model_name, version),
    UNIQUE (model_name, id)
);

-- A target is host:port and nothing else: no scheme, no path, no unix socket, no number in disguise (0x7f000001,
-- 2130706433), not a word that gRPC takes for a scheme, and not the link-local range with the clouds' metadata service.
CREATE TABLE ModelEndpoint (
    id               BIGSERIAL    PRIMARY KEY,
    model_version_id BIGINT       NOT NULL REFERENCES ModelVersion(id) ON DELETE CASCADE,
    target           VARCHAR(255) NOT NULL
        CONSTRAINT modelendpoint_target_is_host_and_port CHECK (target ~ (
            '^(' ||
            '((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])' ||
            '|([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?' ||
            '|\[[0-9A-Fa-f:]{2,39}\]' ||
            '):([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$'))
        CONSTRAINT modelendpoint_target_is_no_scheme CHECK (
            target !~* '^(unix|unix-abstract|vsock|dns|ipv4|ipv6|xds|google-c2p):')
        CONSTRAINT modelendpoint_target_is_not_link_local CHECK (
            target !~ '^169\.254\.' AND target !~* '^\[(fe[89ab][0-9a-f]:|.*a9fe:)'),
    created_at       TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    UNIQUE (model_version_id, target)
);

CREATE TABLE ServingPolicy (
    model_name          VARCHAR(255) PRIMARY KEY,
    champion_version    BIGINT       NOT NULL REFERENCES ModelVersion(id),
    challenger_version  BIGINT       REFERENCES ModelVersion(id),
    challenger_weight   INT          NOT NULL DEFAULT 0 CHECK (challenger_weight BETWEEN 0 AND 100),
    shadow_version      BIGINT       REFERENCES ModelVersion(id),
    shadow_percent      INT          NOT NULL DEFAULT 100 CHECK (shadow_percent BETWEEN 0 AND 100),
    fallback            BOOLEAN      NOT NULL DEFAULT TRUE,
    salt                VARCHAR(255),
    category_roles      JSONB        NOT NULL DEFAULT '{}',
    rollout_id          BIGINT,
    previous_champion   BIGINT,
    generation          BIGINT       NOT NULL DEFAULT 1,
    updated_at          TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    updated_by          TEXT         NOT NULL DEFAULT SESSION_USER,
    CONSTRAINT servingpolicy_champion_of_model FOREIGN KEY (model_name, champion_version)
        REFERENCES ModelVersion (model_name, id),
    CONSTRAINT servingpolicy_challenger_of_model FOREIGN KEY (model_name, challenger_version)
        REFERENCES ModelVersion (model_name, id),
    CONSTRAINT servingpolicy_shadow_of_model FOREIGN KEY (model_name, shadow_version)
        REFERENCES ModelVersion (model_name, id),
    CONSTRAINT servingpolicy_weight_needs_challenger CHECK (challenger_weight = 0 OR challenger_version IS NOT NULL),
    CONSTRAINT servingpolicy_roles_differ CHECK (
        champion_version IS DISTINCT FROM challenger_version
        AND champion_version IS DISTINCT FROM shadow_version
        AND (challenger_version IS NULL OR challenger_version IS DISTINCT FROM shadow_version))
);

CREATE TABLE PolicyAudit (
    id         BIGSERIAL    PRIMARY KEY,
    model_name VARCHAR(255) NOT NULL,
    generation BIGINT       NOT NULL,
    changed_at TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    actor      TEXT         NOT NULL,
    via        TEXT         NOT NULL,
    reason     TEXT,
    action     VARCHAR(10)  NOT NULL CHECK (action IN ('insert', 'update', 'delete')),
    before     JSONB,
    after      JSONB
);
CREATE INDEX ON PolicyAudit (model_name, id DESC);

-- What a poll reads. The transaction's id makes it gapless without a global lock: a reader remembers the oldest
-- transaction that was still open at its last poll and asks for every row written by that one or a later one.
-- A row for each thing that changes, not for each model: a transaction left open on a version must not hold the row that
-- a change of the weight has to write.
CREATE TABLE PolicyChange (
    model_name  VARCHAR(255) NOT NULL,
    source      VARCHAR(40)  NOT NULL CHECK (source ~ '^(policy|keys|version:[0-9]+)$'),
    generation  BIGINT       NOT NULL DEFAULT 0,   -- of the policy, and kept when that is deleted
    changed_xid XID8         NOT NULL,
    changed_at  TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    PRIMARY KEY (model_name, source)
);
CREATE INDEX ON PolicyChange (changed_xid);

CREATE TABLE PredictionLog (
    id                  BIGSERIAL    NOT NULL,
    model_version_id    BIGINT       NOT NULL REFERENCES ModelVersion(id),
    entity_id           VARCHAR(255) NOT NULL,
    input_hash          CHAR(64)     NOT NULL,
    prediction          JSONB        NOT NULL,
    latency_ms          INT          NOT NULL,
    predicted_at        TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    prediction_id       UUID,
    assigned_version_id BIGINT,
    score               DOUBLE PRECISION,
    latency_us          BIGINT,
    role                VARCHAR(20),
    reason              VARCHAR(20),
    status              VARCHAR(20)  NOT NULL DEFAULT 'ok',
    error_code          VARCHAR(20),
    bucket              SMALLINT,
    policy_generation   BIGINT,
    rollout_id          BIGINT,
    cache_hit           BOOLEAN      NOT NULL DEFAULT FALSE,
    defaulted           JSONB,
    PRIMARY KEY (id, predicted_at)   -- a partitioned table's key must hold the column it is cut by
) PARTITION BY RANGE (predicted_at);
CREATE INDEX ON PredictionLog (model_version_id, predicted_at DESC);

CREATE TABLE PredictionMetric (
    model_version_id BIGINT       NOT NULL REFERENCES ModelVersion(id),
    metric_name      VARCHAR(100) NOT NULL,
    value            FLOAT        NOT NULL,
    computed_at      TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    PRIMARY KEY (model_version_id, metric_name, computed_at)
);

CREATE TABLE SpoolOffset (
    spool_id    TEXT        PRIMARY KEY,
    segment     BIGINT      NOT NULL,
    byte_offset BIGINT      NOT NULL,
    updated_at  TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

CREATE TABLE PredictionDeadLetter (
    id          BIGSERIAL   PRIMARY KEY,
    spool_id    TEXT        NOT NULL,
    segment     BIGINT      NOT NULL,
    byte_offset BIGINT      NOT NULL,
    "row"       BYTEA       NOT NULL,
    why         TEXT        NOT NULL,
    at          TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    UNIQUE (spool_id, segment, byte_offset)
);

CREATE TABLE ApiKey (
    id         VARCHAR(64) PRIMARY KEY,
    sha256     CHAR(64)    NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    scopes     TEXT[]      NOT NULL,
    note       TEXT,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    created_by TEXT        NOT NULL DEFAULT SESSION_USER,
    revoked_at TIMESTAMPTZ
);

CREATE TABLE ProxyInstance (
    instance    TEXT        PRIMARY KEY,
    generations JSONB       NOT NULL DEFAULT '{}',
    started_at  TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    seen_at     TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

CREATE TABLE Rollout (
    id                 BIGSERIAL    PRIMARY KEY,
    model_name         VARCHAR(255) NOT NULL,
    champion_version   BIGINT       NOT NULL REFERENCES ModelVersion(id),
    challenger_version BIGINT       NOT NULL REFERENCES ModelVersion(id),
    plan               JSONB        NOT NULL,
    phase              VARCHAR(20)  NOT NULL DEFAULT 'PROGRESSING'
                       CHECK (phase IN ('PROGRESSING', 'WAITING', 'PROMOTING', 'SUCCEEDED', 'FAILED')),
    step               INT          NOT NULL DEFAULT 0 CHECK (step >= 0),
    salt               VARCHAR(255),
    reason             TEXT,
    started_by         TEXT         NOT NULL DEFAULT SESSION_USER,
    started_at         TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    step_started_at    TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    finished_at        TIMESTAMPTZ,
    CHECK (champion_version <> challenger_version)
);
CREATE UNIQUE INDEX rollout_one_open_per_model ON Rollout (model_name)
    WHERE phase IN ('PROGRESSING', 'WAITING', 'PROMOTING');

CREATE TABLE RolloutEvent (
    id           BIGSERIAL   PRIMARY KEY,
    rollout_id   BIGINT      NOT NULL REFERENCES Rollout(id) ON DELETE CASCADE,
    at           TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    step         INT         NOT NULL,
    phase        VARCHAR(20) NOT NULL,
    verdict      VARCHAR(20) CHECK (verdict IN ('ADVANCE', 'HOLD', 'ROLL_BACK', 'INVALID')),
    reason       TEXT        NOT NULL,
    evidence     JSONB       NOT NULL DEFAULT '[]',
    inputs       JSONB       NOT NULL DEFAULT '{}',
    thresholds   JSONB       NOT NULL DEFAULT '{}',
    code_version TEXT        NOT NULL,
    actor        TEXT        NOT NULL DEFAULT SESSION_USER
);
CREATE INDEX ON RolloutEvent (rollout_id, id);

CREATE TABLE Experiment (
    id                 BIGSERIAL    PRIMARY KEY,
    model_name         VARCHAR(255) NOT NULL,
    name               VARCHAR(100) NOT NULL,
    champion_version   BIGINT       NOT NULL REFERENCES ModelVersion(id),
    challenger_version BIGINT       NOT NULL REFERENCES ModelVersion(id),
    metric             VARCHAR(100) NOT NULL,
    plan               JSONB        NOT NULL DEFAULT '{}',
    result             JSONB,
    created_by         TEXT         NOT NULL DEFAULT SESSION_USER,
    started_at         TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    ended_at           TIMESTAMPTZ,
    UNIQUE (model_name, name),
    CHECK (champion_version <> challenger_version)
);

-- The sender's event id is the key: sending an outcome twice counts it once.
CREATE TABLE OutcomeEvent (
    event_id      VARCHAR(255)     PRIMARY KEY,
    model_name    VARCHAR(255)     NOT NULL,
    entity_id     VARCHAR(255),
    prediction_id UUID,
    name          VARCHAR(100)     NOT NULL,
    value         DOUBLE PRECISION NOT NULL,
    occurred_at   TIMESTAMPTZ      NOT NULL,
    received_at   TIMESTAMPTZ      NOT NULL DEFAULT NOW(),
    CHECK (entity_id IS NOT NULL OR prediction_id IS NOT NULL)
);
CREATE INDEX ON OutcomeEvent (model_name, name, entity_id, occurred_at);

CREATE TABLE AlertOutbox (
    id              BIGSERIAL    PRIMARY KEY,
    dedup_key       VARCHAR(255) NOT NULL,
    action          VARCHAR(20)  NOT NULL CHECK (action IN ('trigger', 'acknowledge', 'resolve', 'change')),
    severity        VARCHAR(20)  NOT NULL CHECK (severity IN ('critical', 'error', 'warning', 'info')),
    model_name      VARCHAR(255),
    payload         JSONB        NOT NULL,
    created_at      TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    next_attempt_at TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    attempts        INT          NOT NULL DEFAULT 0,
    last_error      TEXT,
    delivered_at    TIMESTAMPTZ
);
CREATE INDEX alertoutbox_pending ON AlertOutbox (next_attempt_at) WHERE delivered_at IS NULL;
