"""``understudy source``: model registries that are followed."""
