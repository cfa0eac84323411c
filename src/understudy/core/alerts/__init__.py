"""Alert events, and the payloads that receivers are sent."""
