"""Latency of a challenger: the typical answer, the slow tail, changes within a step, and cold starts."""
