"""What the command line is before a command runs: its nouns, loaded when called, and the extras they need."""
