UPDATE ApiKey SET expires_at = now() + INTERVAL '30 days';
