UPDATE ModelVersion SET base_model = 'trees-v2', family = 'trees' WHERE model_name = 'churn';
