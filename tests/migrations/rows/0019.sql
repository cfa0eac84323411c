UPDATE PredictionLog SET deadline_us = 140000 WHERE bucket % 4 = 1;
