DROP TRIGGER modelendpoint_guard_last ON ModelEndpoint;
DROP TRIGGER modelendpoint_lock_version ON ModelEndpoint;
DROP TRIGGER modelversion_guard_deletion ON ModelVersion;
DROP TRIGGER modelversion_guard_size ON ModelVersion;
DROP FUNCTION understudy_guard_last_endpoint();
DROP FUNCTION understudy_lock_version();
DROP FUNCTION understudy_guard_deletion();
DROP FUNCTION understudy_guard_size();
