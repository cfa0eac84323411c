"""What commands that change a policy share: files, plans, and warnings about versions that get a role."""
