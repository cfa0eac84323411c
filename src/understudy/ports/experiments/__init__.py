"""A/B tests: what the arms were given, how tests were declared, and outcomes."""
