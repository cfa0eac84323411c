"""A judge's comparisons of both versions' answers to the same inputs."""
