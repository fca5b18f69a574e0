"""Active sets: most labels of a token need no transitions of their own (chapter 10).

Source: Jeong, Lin and Lee (2009).
"""
