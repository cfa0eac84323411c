"""Pages of the console by what they are about: what a browser asks for, and what it is answered."""
