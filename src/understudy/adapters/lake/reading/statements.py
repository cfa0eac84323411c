"""What the reports ask, in DuckDB's SQL: the statements of ``adapters.postgres.experiments`` over rows of the lake.

Times are whole microseconds, so that no rounding of theirs differs from Postgres'. Every value is an argument.
"""

# Exposures of which a question is made: calls routed by their bucket (a category or the caller's wish is not random)
# in one of its epochs. Rows are read again for whatever needs more of them than an entity's counts: a table of all of
# them would not fit into memory.
EPOCHS = "CREATE TEMP TABLE epochs (generation BIGINT, number INTEGER)"
ADD_EPOCHS = "INSERT INTO epochs SELECT unnest($generations::BIGINT[]), unnest($numbers::INTEGER[])"
EXPOSURE_COLUMNS = (
    "entity_id", "predicted_at", "policy_generation", "assigned_version_id", "model_version_id", "role",
)  # fmt: skip
_EXPOSURE = """
    (SELECT * REPLACE (epoch_us(predicted_at) AS predicted_at), epochs.number AS epoch, assigned_version_id AS assigned,
            model_version_id AS served
     FROM batch JOIN epochs ON epochs.generation = batch.policy_generation WHERE role <> 'shadow') AS exposure
"""
# What an entity met first, and what else a question needs of these calls. Folded again and again while it is filled.
_MET = "CREATE TEMP TABLE met (entity_id VARCHAR, epoch INTEGER, assigned BIGINT, served BIGINT, first_us BIGINT{more})"
_ADD_MET = f"""
    INSERT INTO met
    SELECT entity_id, epoch, assigned, served, min(predicted_at){{more}} FROM {_EXPOSURE}
    GROUP BY entity_id, epoch, assigned, served
"""  # noqa: S608 - constants
_FOLD_MET = """
    CREATE TEMP TABLE folded AS
    SELECT entity_id, epoch, assigned, served, min(first_us) AS first_us{more} FROM met
    GROUP BY entity_id, epoch, assigned, served;
    DROP TABLE met;
    ALTER TABLE folded RENAME TO met
"""
MET, ADD_MET, FOLD_MET = (text.format(more="") for text in (_MET, _ADD_MET, _FOLD_MET))
_MET_CALLS = ", last_us BIGINT, calls BIGINT"
_ADD_CALLS = ", max(predicted_at), count(*)"
_FOLD_CALLS = ", max(last_us) AS last_us, sum(calls)::BIGINT AS calls"
MET_CALLS, ADD_MET_CALLS, FOLD_MET_CALLS = (
    _MET.format(more=_MET_CALLS), _ADD_MET.format(more=_ADD_CALLS), _FOLD_MET.format(more=_FOLD_CALLS),
)  # fmt: skip
MET_ALL = _MET.format(more=_MET_CALLS + ", scores DOUBLE, scored BIGINT")
ADD_MET_ALL = _ADD_MET.format(more=_ADD_CALLS + ", sum(score), count(score)")
FOLD_MET_ALL = _FOLD_MET.format(more=_FOLD_CALLS + ", sum(scores) AS scores, sum(scored)::BIGINT AS scored")
ENTRY = """
    CREATE OR REPLACE TEMP TABLE entry AS
    SELECT entity_id, min(first_us) AS entered_at, arg_min(epoch, first_us) AS epoch,
           arg_min(assigned, first_us) AS assigned, count(*) AS ways
    FROM met GROUP BY entity_id
"""
# Entities that met two arms in their first microsecond: the least prediction id decides. Most met one arm in one way.
TIED = """
    CREATE OR REPLACE TEMP TABLE tied AS
    SELECT entity_id, entered_at FROM entry JOIN met USING (entity_id)
    WHERE ways > 1 AND first_us = entered_at GROUP BY entity_id, entered_at
    HAVING max(met.epoch) > min(met.epoch) OR max(met.assigned) > min(met.assigned)
"""
TIMES_OF_TIED = "SELECT min(entered_at), max(entered_at) FROM tied"
TIED_COLUMNS = (*EXPOSURE_COLUMNS, "prediction_id")
FIRST_OF_TIED = f"""
    CREATE OR REPLACE TEMP TABLE first_of_tied AS
    SELECT entity_id, first(epoch ORDER BY prediction_id::UUID NULLS LAST) AS epoch,
           first(assigned ORDER BY prediction_id::UUID NULLS LAST) AS assigned
    FROM {_EXPOSURE} JOIN tied USING (entity_id)
    WHERE predicted_at = entered_at AND ($epoch::INTEGER IS NULL OR exposure.epoch = $epoch) GROUP BY entity_id
"""  # noqa: S608 - constants
SETTLE_TIED = """
    UPDATE entry SET epoch = first_of_tied.epoch, assigned = first_of_tied.assigned
    FROM first_of_tied WHERE entry.entity_id = first_of_tied.entity_id
"""
COUNT_ENTRIES = "SELECT count(*) FROM entry"
ARM_ENTRIES = "SELECT epoch, assigned, count(*) FROM entry GROUP BY ALL"

# An outcome's time may be cut to whole seconds, so it counts from the second on in which its entity came.
_CHOSEN = """
    CREATE TEMP TABLE chosen AS
    SELECT * EXCLUDE (ways), entered_at - entered_at % 1000000 AS begins, entered_at + $within_us AS ends
    FROM {entries}
"""
_HASH = "hashtextextended(entity_id, 20::BIGINT)"
CHOOSE_ALL = _CHOSEN.format(entries="entry")
CHOOSE_SOME = _CHOSEN.format(entries=f"entry ORDER BY {_HASH} LIMIT $most")
CHOOSE_OF_ARMS = _CHOSEN.format(
    entries=f"entry QUALIFY row_number() OVER (PARTITION BY assigned ORDER BY {_HASH}) <= $most"
)

# Calls count until an entity's time for outcomes ends. Where some came later the rows have to be read again.
CALLED = """
    CREATE TEMP TABLE called AS
    SELECT entity_id, sum(calls)::BIGINT AS calls,
           coalesce(sum(calls) FILTER (WHERE served = chosen.assigned), 0)::BIGINT AS own_calls
    FROM met JOIN chosen USING (entity_id) GROUP BY entity_id HAVING max(last_us) < min(ends)
"""
STAYED = """
    CREATE TEMP TABLE stayed AS
    SELECT entity_id, assigned, ends FROM chosen ANTI JOIN called USING (entity_id)
"""
LAST_END = "SELECT max(ends) FROM stayed"
ADD_CALLED = f"""
    INSERT INTO called
    SELECT entity_id, count(*), count(*) FILTER (WHERE served = stayed.assigned)
    FROM {_EXPOSURE} JOIN stayed USING (entity_id) WHERE predicted_at < ends GROUP BY entity_id
"""  # noqa: S608 - constants
FOLD_CALLED = """
    CREATE TEMP TABLE folded AS
    SELECT entity_id, sum(calls)::BIGINT AS calls, sum(own_calls)::BIGINT AS own_calls FROM called GROUP BY entity_id;
    DROP TABLE called;
    ALTER TABLE folded RENAME TO called
"""
DROP_MET = "DROP TABLE met; DROP TABLE entry"

BEFORE_COLUMNS = ("entity_id", "role")
BEFORE = "CREATE TEMP TABLE known_before (entity_id VARCHAR, calls_before BIGINT)"
ADD_BEFORE = """
    INSERT INTO known_before
    SELECT entity_id, count(*) FROM batch JOIN chosen USING (entity_id) WHERE role <> 'shadow' GROUP BY entity_id
"""
FOLD_BEFORE = """
    CREATE TEMP TABLE folded AS
    SELECT entity_id, sum(calls_before)::BIGINT AS calls_before FROM known_before GROUP BY entity_id;
    DROP TABLE known_before;
    ALTER TABLE folded RENAME TO known_before
"""

TOLD = "CREATE TEMP TABLE told (event_id VARCHAR, entity_id VARCHAR, prediction_id VARCHAR, at_us BIGINT, value DOUBLE)"
ADD_TOLD = "INSERT INTO told SELECT event_id, entity_id, prediction_id, at_us, value FROM given"
COUNT_TOLD_OF_CALLS = "SELECT count(*) FROM told WHERE entity_id IS NULL"
EVENT_COLUMNS = TIED_COLUMNS
EVENT = "CREATE TEMP TABLE event AS SELECT event_id, entity_id, at_us, value FROM told WHERE entity_id IS NOT NULL"
ADD_EVENTS = f"""
    INSERT INTO event
    SELECT event_id, exposure.entity_id, at_us, value FROM {_EXPOSURE} JOIN told USING (prediction_id)
    WHERE told.entity_id IS NULL
"""  # noqa: S608 - constants
_DURING = "FILTER (WHERE at_us >= begins AND at_us < ends)"
_PAST = "FILTER (WHERE at_us < $since_us)"
ENTITIES = f"""
    WITH outcome AS (
        SELECT entity_id, count(*) {_DURING} AS events,
               CASE WHEN $is_share THEN max(value) {_DURING} ELSE sum(value) {_DURING} END AS value,
               CASE WHEN $is_share THEN max(value) {_PAST} ELSE sum(value) {_PAST} END AS value_before
        FROM event JOIN chosen USING (entity_id) GROUP BY entity_id
    )
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

LATENCY_COLUMNS = (*TIED_COLUMNS, "latency_us", "status", "cache_hit")
_VALUES = """
    numbered AS (
        SELECT *, count(*) OVER (PARTITION BY entity_id) AS total,
               row_number() OVER (PARTITION BY entity_id ORDER BY hashtextextended(key, 20::BIGINT)) AS number
        FROM observed
    )
    SELECT assigned = $challenger::BIGINT AS is_b, epoch, max(total) AS total, list(value) AS values
    FROM numbered WHERE number <= $most_values GROUP BY entity_id, assigned, epoch
"""
# Latencies are of calls that a model answered.
LATENCIES = f"""
    WITH observed AS (
        SELECT entity_id, chosen.assigned, chosen.epoch, latency_us / 1e3 AS value, prediction_id AS key
        FROM {_EXPOSURE} JOIN chosen USING (entity_id)
        WHERE predicted_at < ends AND latency_us IS NOT NULL AND status IN ('ok', 'fallback') AND NOT cache_hit
    ), {_VALUES}
"""  # noqa: S608 - constants
OUTCOMES = f"""
    WITH observed AS (
        SELECT entity_id, assigned, epoch, value, event_id AS key FROM event JOIN chosen USING (entity_id)
        WHERE at_us >= begins AND at_us < ends AND ends <= $until_us
    ), {_VALUES}
"""  # noqa: S608 - constants
SCORED_COLUMNS = (*EXPOSURE_COLUMNS, "score")
COUNT_CHOSEN = """
    SELECT coalesce(assigned = $challenger::BIGINT, FALSE), epoch, count(*) FROM chosen GROUP BY 1, 2
"""
KEEP_EPOCH = "DELETE FROM met WHERE epoch <> $epoch"
MEAN_SCORES = f"""
    WITH sampled AS (
        SELECT entity_id, assigned FROM entry
        QUALIFY row_number() OVER (PARTITION BY assigned ORDER BY {_HASH}) <= $most
    )
    SELECT sampled.assigned, sum(scores) / sum(scored) FROM met JOIN sampled USING (entity_id)
    WHERE served = sampled.assigned AND scored > 0 GROUP BY sampled.assigned, entity_id
"""  # noqa: S608 - constants

CALL_COLUMNS = (
    "prediction_id", "predicted_at", "entity_id", "policy_generation", "status", "latency_us", "cache_hit", "score",
    "model_version_id", "assigned_version_id", "role", "reason",
)  # fmt: skip
COUNT_COLUMNS = (
    "model_version_id", "assigned_version_id", "role", "reason", "policy_generation", "prediction_id", "predicted_at",
)  # fmt: skip
_ASKED = """
    model_version_id = $champion AND assigned_version_id = $champion AND role = 'champion' AND reason <> 'forced'
    AND policy_generation IN (SELECT unnest($generations::BIGINT[])) AND prediction_id IS NOT NULL
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

SCORE_COLUMNS = ("assigned_version_id", "status", "cache_hit", "score", "reason", "role")
SAMPLED_SCORE_COLUMNS = (*SCORE_COLUMNS, "entity_id", "prediction_id")
# The rows that windows take scores from; a score that is no number compares as the largest.
_SCORED = """
    FROM batch
    WHERE assigned_version_id = $version AND status = 'ok' AND NOT cache_hit AND score BETWEEN -1e100 AND 1e100
      AND reason <> 'forced' AND (reason <> 'category' OR role = 'shadow')
"""
COUNT_SCORES = f"SELECT count(*) {_SCORED}"
SCORE_GROUPS = f"""
    SELECT list(score) {_SCORED} {_IN_SAMPLE} GROUP BY hashtextextended(entity_id, 0::BIGINT) & $last_bucket
"""
