"""Predicts a training step on a described machine: its parts, memory and power, with an interval."""
