"""Why a design does what it does, and what would make it better: everything asked of one design at work."""
