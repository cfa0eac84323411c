"""Is it better? Outcomes, comparisons, shadows."""
