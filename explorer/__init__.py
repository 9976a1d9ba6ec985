"""Search: design space, exact proof, samplers, reports."""
