"""How a design scales out from one chip to many nodes."""
