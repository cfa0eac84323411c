"""Bodies of predict and rank calls, read from strict JSON."""
