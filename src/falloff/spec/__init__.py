"""What is asked: studies, cells, networks, layouts and hardware, validated and frozen."""
