"""Accelerators: designs, catalogue, memory, area, energy, power, cost."""
