"""A rolling upgrade from the release before this one, and back, under load: ``make test-rolling``."""
