"""What trained models take of real model servers' memory, beside what agents expect of them."""
