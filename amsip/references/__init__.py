"""What is integrated."""
