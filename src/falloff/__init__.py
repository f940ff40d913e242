"""What the next node buys: a reproducible study of how LLM training scales."""
