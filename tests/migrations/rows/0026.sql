UPDATE PredictionLog SET slices = '{"category": "gold"}' WHERE bucket % 4 = 2;
