"""What falloff asks of Slurm, and what Slurm answers."""
