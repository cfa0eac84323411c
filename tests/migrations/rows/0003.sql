UPDATE PredictionLog SET inputs = '{"age": 40}' WHERE bucket % 4 = 0;
UPDATE ServingPolicy SET input_sample_percent = 5 WHERE model_name = 'churn';
