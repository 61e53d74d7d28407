"""What moves nodes."""
