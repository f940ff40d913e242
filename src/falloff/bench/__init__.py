"""The benchmark: the only place with torch."""
