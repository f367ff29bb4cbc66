"""Further forms of the catalogue's faults, for diagnoses: the same mistake with other numbers, or made in another way."""
