UPDATE ServingPolicy SET category_holdout_percent = category_holdout_percent;
