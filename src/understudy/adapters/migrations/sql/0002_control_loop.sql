-- What one version did in one role in 15 seconds, as one shipper of the log saw it: sums only, so that rows are added up
-- in any order and no percentile is ever stored. `counts` is core.windows.Window as JSON. A row is replaced by the same
-- shipper while its window is open; what comes later is a row of its own, under the next epoch.
CREATE TABLE PredictionWindow (
    model_version_id  BIGINT      NOT NULL REFERENCES ModelVersion(id) ON DELETE CASCADE,
    window_start      TIMESTAMPTZ NOT NULL,
    role              VARCHAR(20) NOT NULL,
    rollout_id        BIGINT      NOT NULL DEFAULT 0,
    policy_generation BIGINT      NOT NULL,
    shipper           TEXT        NOT NULL,
    epoch             INT         NOT NULL DEFAULT 0,
    calls             BIGINT      NOT NULL,
    errors            BIGINT      NOT NULL,
    counts            JSONB       NOT NULL,
    PRIMARY KEY (model_version_id, window_start, role, rollout_id, policy_generation, shipper, epoch)
);
CREATE INDEX ON PredictionWindow (window_start);
CREATE INDEX predictionwindow_of_rollout ON PredictionWindow (rollout_id, window_start) WHERE rollout_id <> 0;

-- What a subject of a version (its predictions, or an input) was like in one hour, for drift: core.drift.subject_window as JSON.
CREATE TABLE DriftHour (
    model_version_id BIGINT       NOT NULL REFERENCES ModelVersion(id) ON DELETE CASCADE,
    subject          VARCHAR(255) NOT NULL,
    hour_start       TIMESTAMPTZ  NOT NULL,
    row_count        BIGINT       NOT NULL,
    sums             JSONB        NOT NULL,
    PRIMARY KEY (model_version_id, subject, hour_start)
);
CREATE INDEX ON DriftHour (hour_start);

-- Who may act as the monitor: the epoch grows with each new holder, and each of its writes names the epoch.
CREATE TABLE MonitorLease (
    name       VARCHAR(40) PRIMARY KEY,
    holder     TEXT        NOT NULL,
    epoch      BIGINT      NOT NULL,
    renewed_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

ALTER TABLE ProxyInstance ADD COLUMN in_flight JSONB NOT NULL DEFAULT '{}';

-- state: core.rollout.state.RolloutState as JSON. revision: a transition is applied only to the state that it was decided
-- on. slow_us: the champion's 95th percentile when the rollout began. salt_before: what the policy gets back at the end.
-- announced_at: when every proxy had confirmed the end, and nothing was in flight any more.
ALTER TABLE Rollout
    ADD COLUMN state        JSONB  NOT NULL DEFAULT '{}',
    ADD COLUMN revision     BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN slow_us      BIGINT,
    ADD COLUMN salt_before  VARCHAR(255),
    ADD COLUMN announced_at TIMESTAMPTZ;
CREATE INDEX rollout_to_be_announced ON Rollout (id) WHERE announced_at IS NULL;

-- Proxies read the threshold with the policy, so they have to hear of it.
CREATE FUNCTION understudy_touch_rollout() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM understudy_touch(NEW.model_name, 'policy');
    RETURN NULL;
END $$;
CREATE TRIGGER rollout_touch AFTER UPDATE OF slow_us ON Rollout
    FOR EACH ROW WHEN (NEW.slow_us IS DISTINCT FROM OLD.slow_us) EXECUTE FUNCTION understudy_touch_rollout();

-- Sends all traffic of a model back: to the champion while a challenger has weight; after a promotion, while the old
-- champion is kept warm, to that one. Says what it did; calling it again does nothing.
CREATE FUNCTION understudy_rollback(model TEXT, why TEXT DEFAULT NULL) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    policy  ServingPolicy;
    current Rollout;
    did     TEXT := 'nothing: no challenger has weight, and no promotion can be taken back';
BEGIN
    SELECT * INTO policy FROM ServingPolicy WHERE model_name = model FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM understudy_refuse(format('%s has no serving policy, so there is nothing to roll back', model),
                                  'The models there are: SELECT model FROM understudy_status');
    END IF;
    IF coalesce(why, '') <> '' THEN
        PERFORM set_config('understudy.reason', why, TRUE);
    END IF;
    SELECT * INTO current FROM Rollout
    WHERE model_name = model AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING');
    IF policy.challenger_weight > 0 THEN
        UPDATE ServingPolicy SET challenger_weight = 0 WHERE model_name = model RETURNING * INTO policy;
        did := 'weight 0';
    ELSIF policy.champion_version = current.challenger_version AND policy.rollout_id = current.id THEN
        UPDATE ServingPolicy SET champion_version = current.champion_version, challenger_version = current.challenger_version
        WHERE model_name = model RETURNING * INTO policy;
        did := 'previous champion back';
    END IF;
    RETURN jsonb_build_object('model', model, 'did', did, 'generation', policy.generation,
        'champion', (SELECT version FROM ModelVersion WHERE id = policy.champion_version),
        'challenger', (SELECT version FROM ModelVersion WHERE id = policy.challenger_version),
        'rollout_id', current.id);
END $$;
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_rollback(TEXT, TEXT) SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION understudy_touch_rollout() SET search_path = %I, pg_temp', current_schema());
END $$;
