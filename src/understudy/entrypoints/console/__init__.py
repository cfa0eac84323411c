"""The operator console: pages that show what decides, and let an operator decide."""
