"""What builds the documentation and is no part of the library."""
