"""Loading: which versions model servers are to have, what an agent does next, names and digests of artifacts."""
