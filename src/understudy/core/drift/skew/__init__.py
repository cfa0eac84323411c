"""Training/serving skew: features as calls were served them, beside what the feature store has for the same entity."""
