"""What others do with the same draws, one file a family."""
