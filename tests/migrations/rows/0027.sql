UPDATE ServingPolicy SET category_holdout_percent = 10 WHERE model_name = 'churn';
