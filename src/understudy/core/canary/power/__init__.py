"""Statistical power: which regression the traffic would show before a start, and could have shown so far."""
