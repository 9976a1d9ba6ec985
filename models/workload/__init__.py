"""Requests that a design has to serve: observed, given by formula, and quantised into classes."""
