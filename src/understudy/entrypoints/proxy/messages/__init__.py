"""Headers, problems and replies of HTTP calls."""
