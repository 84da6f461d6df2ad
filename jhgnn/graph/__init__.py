"""What a heterograph is: its schema, its arrays on the host, and the semantic graphs built from it."""
