UPDATE ServingPolicy SET arms = jsonb_build_array(jsonb_build_object('version_id',
    (SELECT id FROM ModelVersion WHERE model_name = 'armed' AND version = '2'), 'first', 90, 'last', 99))
WHERE model_name = 'armed';
