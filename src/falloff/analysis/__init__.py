"""From records to tables: what is computed, each metric once."""
