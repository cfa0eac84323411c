UPDATE ServingPolicy SET on_drift = 'rollback' WHERE model_name = 'churn';
