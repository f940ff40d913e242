"""From tables to figures and the page: the only place with matplotlib."""
