UPDATE ServingPolicy SET guard = 'alert', rollout_id = NULL WHERE model_name = 'churn';
