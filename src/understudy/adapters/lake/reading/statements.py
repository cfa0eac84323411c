"""What the reports ask, in DuckDB's SQL: the statements of ``adapters.postgres.experiments`` over rows of the lake.

Times are whole microseconds, so that no rounding of theirs differs from Postgres'. Every value is an argument.
"""

EXPOSURES = """
    CREATE TEMP TABLE epochs (generation BIGINT, number INTEGER);
    CREATE TEMP TABLE exposure (entity_id VARCHAR, prediction_id UUID, at_us BIGINT, score DOUBLE, millis DOUBLE,
                                epoch INTEGER, assigned BIGINT, served BIGINT);
"""
EXPOSURE_COLUMNS = (
    "entity_id", "prediction_id", "predicted_at", "score", "latency_us", "policy_generation", "assigned_version_id",
    "model_version_id", "role", "reason", "status", "cache_hit",
)  # fmt: skip
ADD_EPOCHS = "INSERT INTO epochs SELECT unnest($generations::BIGINT[]), unnest($numbers::INTEGER[])"
# A call that a category or the caller routed is not randomised. Latencies are of calls that a model answered.
ADD_EXPOSURES = """
    INSERT INTO exposure
    SELECT entity_id, prediction_id::UUID, epoch_us(predicted_at), score,
           CASE WHEN status IN ('ok', 'fallback') AND NOT cache_hit THEN latency_us / 1e3 END,
           epochs.number, assigned_version_id, model_version_id
    FROM batch JOIN epochs ON epochs.generation = batch.policy_generation
    WHERE list_contains($versions::BIGINT[], assigned_version_id) AND role <> 'shadow' AND reason = 'bucket'
"""
# The first by time and then by prediction: the least of all.
ENTRY = """
    CREATE TEMP TABLE entry AS
    SELECT entity_id, first.at_us AS entered_at, first.epoch AS epoch, first.assigned AS assigned FROM (
        SELECT entity_id, min({'at_us': at_us, 'id': prediction_id, 'epoch': epoch, 'assigned': assigned}) AS first
        FROM exposure GROUP BY entity_id)
"""
COUNT_ENTRIES = "SELECT count(*) FROM entry"
ARM_ENTRIES = "SELECT epoch, assigned, count(*) FROM entry GROUP BY ALL"

BEFORE = "CREATE TEMP TABLE before (entity_id VARCHAR, calls BIGINT)"
BEFORE_COLUMNS = ("entity_id", "role", "predicted_at")
ADD_BEFORE = "INSERT INTO before SELECT entity_id, count(*) FROM batch WHERE role <> 'shadow' GROUP BY entity_id"

TOLD = "CREATE TEMP TABLE told (event_id VARCHAR, entity_id VARCHAR, prediction_id UUID, at_us BIGINT, value DOUBLE)"
ADD_TOLD = "INSERT INTO told SELECT event_id, entity_id, prediction_id::UUID, at_us, value FROM batch"
_EVENT = """
    event AS (
        SELECT event_id, entity_id, at_us, value FROM told WHERE entity_id IS NOT NULL
        UNION ALL
        SELECT event_id, exposure.entity_id, told.at_us, told.value
        FROM told JOIN exposure ON exposure.prediction_id = told.prediction_id WHERE told.entity_id IS NULL
    )
"""
_TIMES = "entered_at - entered_at % 1000000 AS begins, entered_at + $within_us AS ends"
_DURING = "FILTER (WHERE event.at_us >= begins AND event.at_us < ends)"
_PAST = "FILTER (WHERE event.at_us < $since_us)"
# An outcome's time may be cut to whole seconds, so it counts from the second on in which its entity came.
ENTITIES = f"""
    WITH chosen AS MATERIALIZED (
        SELECT *, {_TIMES} FROM entry {{sample}}
    ), called AS (
        SELECT entity_id, count(*) AS calls, count(*) FILTER (WHERE served = chosen.assigned) AS own_calls
        FROM exposure JOIN chosen USING (entity_id) WHERE at_us < ends GROUP BY entity_id
    ), {_EVENT}, outcome AS (
        SELECT entity_id, count(*) {_DURING} AS events,
               CASE WHEN $is_share THEN max(value) {_DURING} ELSE sum(value) {_DURING} END AS value,
               CASE WHEN $is_share THEN max(value) {_PAST} ELSE sum(value) {_PAST} END AS value_before
        FROM event JOIN chosen USING (entity_id) GROUP BY entity_id
    ), known_before AS (SELECT entity_id, sum(calls)::BIGINT AS calls_before FROM before GROUP BY entity_id)
    SELECT coalesce(assigned = $challenger::BIGINT, FALSE) AS is_b, epoch,
           least(floor(((entered_at - $since_us) / 1e6) * $slices::DOUBLE / greatest($entering::DOUBLE, 1e-6)),
                 $slices::DOUBLE - 1)::INTEGER AS slice,
           ends <= $until_us AS is_closed,
           coalesce(value, 0)::DOUBLE AS numerator, CASE WHEN $per_call THEN calls::DOUBLE ELSE 1 END AS denominator,
           CASE WHEN calls_before > 0 THEN coalesce(value_before, 0) END AS covariate,
           count(*) AS entities, count(*) FILTER (WHERE events > 0) AS with_outcome,
           sum(calls)::BIGINT AS calls, sum(own_calls)::BIGINT AS own_calls,
           count(*) FILTER (WHERE entered_at >= $recent_us) AS recent,
           CASE WHEN $per_call THEN calls_before::DOUBLE END AS covariate_denominator
    FROM chosen JOIN called USING (entity_id)
    LEFT JOIN outcome USING (entity_id) LEFT JOIN known_before USING (entity_id)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 13
"""  # noqa: S608 - constants
SAMPLE = "ORDER BY hashtextextended(entity_id, 20::BIGINT) LIMIT $most"

_CHOSEN = f"""
    chosen AS MATERIALIZED (
        SELECT *, {_TIMES} FROM (
            SELECT *,
                   row_number() OVER (PARTITION BY assigned ORDER BY hashtextextended(entity_id, 20::BIGINT)) AS place
            FROM entry) AS placed
        WHERE place <= $most
    )
"""  # noqa: S608 - constants
_VALUES = """
    numbered AS (
        SELECT *, count(*) OVER (PARTITION BY entity_id) AS total,
               row_number() OVER (PARTITION BY entity_id ORDER BY hashtextextended(key, 20::BIGINT)) AS number
        FROM observed
    )
    SELECT assigned = $challenger::BIGINT AS is_b, epoch, max(total) AS total, list(value) AS values
    FROM numbered JOIN chosen USING (entity_id) WHERE number <= $most_values GROUP BY entity_id, assigned, epoch
"""
LATENCIES = f"""
    WITH {_CHOSEN}, observed AS (
        SELECT entity_id, millis AS value, prediction_id::VARCHAR AS key FROM exposure JOIN chosen USING (entity_id)
        WHERE at_us < ends AND millis IS NOT NULL
    ), {_VALUES}
"""  # noqa: S608 - constants
OUTCOMES = f"""
    WITH {_CHOSEN}, {_EVENT}, observed AS (
        SELECT entity_id, value, event_id AS key FROM event JOIN chosen USING (entity_id)
        WHERE event.at_us >= begins AND event.at_us < ends AND ends <= $until_us
    ), {_VALUES}
"""  # noqa: S608 - constants
MEAN_SCORES = """
    WITH chosen AS (
        SELECT *, row_number() OVER (PARTITION BY assigned ORDER BY hashtextextended(entity_id, 20::BIGINT)) AS place
        FROM entry
    )
    SELECT chosen.assigned, avg(score) FROM chosen
    JOIN exposure ON exposure.entity_id = chosen.entity_id AND served = chosen.assigned
    WHERE place <= $most AND score IS NOT NULL GROUP BY chosen.assigned, chosen.entity_id
"""

CALL_COLUMNS = (
    "prediction_id", "predicted_at", "entity_id", "policy_generation", "status", "latency_us", "cache_hit", "score",
    "model_version_id", "assigned_version_id", "role", "reason",
)  # fmt: skip
COUNT_COLUMNS = (
    "model_version_id", "assigned_version_id", "role", "reason", "policy_generation", "prediction_id", "predicted_at",
)  # fmt: skip
_ASKED = """
    model_version_id = $champion AND assigned_version_id = $champion AND role = 'champion' AND reason <> 'forced'
    AND list_contains($generations::BIGINT[], policy_generation) AND prediction_id IS NOT NULL
"""
COUNT_CALLS = f"SELECT count(*) FROM batch WHERE {_ASKED}"  # noqa: S608 - constants
_IN_SAMPLE = "AND ($is_whole OR hashtextextended(prediction_id, 0::BIGINT) <= $largest)"
CALLS = """
    CREATE TEMP TABLE asked (prediction_id UUID, at_us BIGINT, entity_id VARCHAR, generation BIGINT, status VARCHAR,
                             us BIGINT, score DOUBLE);
    CREATE TEMP TABLE seen (prediction_id UUID, status VARCHAR, us BIGINT, score DOUBLE);
"""
ADD_ASKED = f"""
    INSERT INTO asked
    SELECT prediction_id::UUID, epoch_us(predicted_at), entity_id, policy_generation, status,
           CASE WHEN NOT cache_hit THEN latency_us END, score
    FROM batch WHERE {_ASKED} {_IN_SAMPLE}
"""  # noqa: S608 - constants
SEEN_COLUMNS = ("prediction_id", "predicted_at", "status", "latency_us", "cache_hit", "score", "role")
ADD_SEEN = f"""
    INSERT INTO seen
    SELECT prediction_id::UUID, status, CASE WHEN NOT cache_hit THEN latency_us END, score
    FROM batch WHERE role = 'shadow' {_IN_SAMPLE}
"""  # noqa: S608 - constants
_PAIRED = """
    SELECT asked.prediction_id::VARCHAR AS id, at_us / 1e6, entity_id, generation, asked.status, seen.status, asked.us,
           seen.us, asked.score, seen.score
    FROM asked LEFT JOIN seen USING (prediction_id)
"""
PAIRS = f"{_PAIRED} LIMIT $most"
DISAGREEMENTS = f"""
    {_PAIRED} WHERE asked.score IS NOT NULL AND seen.score IS NOT NULL
    ORDER BY abs(seen.score - asked.score) DESC, asked.prediction_id LIMIT $most
"""

SCORE_COLUMNS = (
    "assigned_version_id", "status", "cache_hit", "score", "reason", "role", "entity_id", "prediction_id",
    "predicted_at",
)  # fmt: skip
SCORES = """
    CREATE TEMP TABLE scored (entity_id VARCHAR, prediction_id VARCHAR, score DOUBLE)
"""
# The rows that windows take scores from; a score that is no number compares as the largest.
ADD_SCORES = """
    INSERT INTO scored SELECT entity_id, prediction_id, score FROM batch
    WHERE assigned_version_id = $version AND status = 'ok' AND NOT cache_hit AND score BETWEEN -1e100 AND 1e100
      AND reason <> 'forced' AND (reason <> 'category' OR role = 'shadow')
"""
COUNT_SCORES = "SELECT count(*) FROM scored"
SCORE_GROUPS = """
    SELECT list(score) FROM scored WHERE $is_whole OR hashtextextended(prediction_id, 0::BIGINT) <= $largest
    GROUP BY hashtextextended(entity_id, 0::BIGINT) & $last_bucket
"""
