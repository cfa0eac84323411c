"""Evidence of a check: what it is given, and what the checks of rates and those of means have in common."""
