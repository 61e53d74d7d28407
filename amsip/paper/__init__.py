"""The paper's figures and tables, one file each, and its sentences as checks."""
