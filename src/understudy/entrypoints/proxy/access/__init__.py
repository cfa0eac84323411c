"""Who calls, and what they may: keys, scopes, tokens and rate limits of callers."""
