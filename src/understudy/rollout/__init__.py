"""Moving traffic by a plan, and taking it back."""
