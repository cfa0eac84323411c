"""What several commands say in words: events and checks, findings, guards, policies."""
