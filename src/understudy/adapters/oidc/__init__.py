"""Tokens of an OIDC issuer: the keys that it publishes, and signatures by them."""
