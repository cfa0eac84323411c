DROP TRIGGER servingpolicy_guard_validated_categories ON ServingPolicy;
DROP FUNCTION understudy_guard_categories();
