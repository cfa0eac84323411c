"""What the proxy knows of policies: the feed, its gauges and reports, and rate limits."""
