"""Windows of 15 seconds: what a version did, counted by bucket and entity, with latency histograms."""
