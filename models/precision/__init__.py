"""Number formats, mixes of them over the modules of a network, and the error a mix costs."""
