INSERT INTO PolicyFile (model_name, path, document) VALUES ('churn', 'policy/churn.yaml', '{"challenger_weight": 5}');
