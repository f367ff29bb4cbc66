"""What the error of an engine says about positions and cached tokens. Needs no torch."""
