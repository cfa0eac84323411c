"""What measures the product from outside: faults, hostile input, and a check of the deployment files."""
