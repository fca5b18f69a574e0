"""Dynamic CRFs: several label chains with potentials between them (chapters 12 and 13).

Source: Sutton, Rohanimanesh and McCallum (2004).
"""
