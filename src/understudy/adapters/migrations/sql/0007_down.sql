DROP TRIGGER rollout_no_truncate ON Rollout;
DROP TRIGGER rollout_guard_new ON Rollout;
DROP TRIGGER rollout_guard ON Rollout;
DROP FUNCTION understudy_guard_new_rollout();
DROP FUNCTION understudy_guard_rollout();
DROP FUNCTION understudy_refuse_rollout(Rollout, TEXT);
DROP FUNCTION understudy_rollout_problem(Rollout);
DROP TRIGGER spooloffset_guard_age ON SpoolOffset;
DROP TRIGGER policychange_guard_age ON PolicyChange;
DROP TRIGGER policyaudit_guard_age ON PolicyAudit;
DROP FUNCTION understudy_guard_age();
CREATE OR REPLACE TRIGGER spooloffset_guard BEFORE UPDATE OR DELETE ON SpoolOffset
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_offset();
CREATE OR REPLACE TRIGGER policychange_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON PolicyChange
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_guard_change();
CREATE OR REPLACE TRIGGER policyaudit_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON PolicyAudit
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_guard_audit();
DROP INDEX policyaudit_changed_at;
DROP INDEX outcomeevent_received_at;
DROP INDEX alertoutbox_of_incident;
