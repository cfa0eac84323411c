"""What breaks while a test looks on, and processes that are killed."""
