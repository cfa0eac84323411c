"""The replicas behind a version: load balancing, retries, hedges, probes, and what is known of each."""
