"""Sources of versions: labels of model registries that move, and what is to be done then."""
