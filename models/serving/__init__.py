"""Serving: steps of continuous batching, capacity, steady state, replay."""
