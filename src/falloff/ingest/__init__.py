"""From logs, tables and traces to records."""
