-- Who ended a declared test; NULL: it is open, or ended before this was kept.
ALTER TABLE Experiment ADD COLUMN ended_by TEXT;

-- Signed here and not by who writes the row, so that an end by hand has its login, and no name is forged afterwards.
CREATE FUNCTION understudy_sign_end() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.ended_by := CASE WHEN NEW.ended_at IS NOT NULL THEN left(understudy_actor(), 255) END;
    ELSIF NEW.ended_at IS NULL THEN
        NEW.ended_by := NULL;
    ELSIF OLD.ended_at IS NULL THEN
        NEW.ended_by := left(understudy_actor(), 255);
    ELSE
        NEW.ended_by := OLD.ended_by;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER experiment_sign_end BEFORE INSERT OR UPDATE ON Experiment
    FOR EACH ROW EXECUTE FUNCTION understudy_sign_end();
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_sign_end() SET search_path = %I, pg_temp', current_schema());
END $$;
