"""One self-contained HTML page: text, tables and drawings, nothing fetched from anywhere."""
