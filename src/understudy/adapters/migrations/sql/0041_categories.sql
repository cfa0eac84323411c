-- A category that routes to the challenger gives it calls, as a share does: no more of them for a version that requires a
-- validation and has none that holds. Its weight, its role and whatever takes calls away are judged elsewhere, or not at all.
CREATE FUNCTION understudy_guard_categories() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    unvalidated TEXT;
    words       TEXT;
    named       RECORD;
BEGIN
    IF NEW.challenger_version IS NULL OR NEW.challenger_weight = 0 THEN
        RETURN NEW;
    END IF;
    IF NOT EXISTS (SELECT FROM jsonb_each_text(NEW.category_roles) AS routed
                   WHERE routed.value = 'challenger'
                     AND (NEW.category_holdout_percent < OLD.category_holdout_percent
                          OR (OLD.category_roles ->> routed.key) IS DISTINCT FROM 'challenger')) THEN
        RETURN NEW;
    END IF;
    unvalidated := understudy_unvalidated(NEW.challenger_version);
    IF unvalidated IS NULL THEN
        RETURN NEW;
    END IF;
    SELECT version, model_name INTO named FROM ModelVersion WHERE id = NEW.challenger_version;
    -- As a shell reads them.
    SELECT string_agg(CASE WHEN word ~ '^[A-Za-z0-9@%+=:,./_-]+$' THEN word
                           ELSE '''' || replace(word, '''', '''"''"''') || '''' END, ' ' ORDER BY place) INTO words
    FROM unnest(ARRAY[named.model_name, named.version]) WITH ORDINALITY AS said (word, place);
    PERFORM understudy_refuse(
        format('version %s of %s is not validated (%s), and gets no more calls by a category', named.version,
               named.model_name, unvalidated),
        format('Have it validated first: understudy version validate %s --while-serving', words));
    RETURN NEW;
END $$;
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_guard_categories() SET search_path = %I, pg_temp', current_schema());
END $$;
REVOKE EXECUTE ON FUNCTION understudy_guard_categories() FROM PUBLIC;
CREATE TRIGGER servingpolicy_guard_validated_categories
    BEFORE UPDATE OF category_roles, category_holdout_percent ON ServingPolicy
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_categories();
