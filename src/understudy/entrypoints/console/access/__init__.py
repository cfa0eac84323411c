"""Who may use the console: keys, sessions, tries of a login, and what each visitor may do."""
