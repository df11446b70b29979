"""Generated sequences that ask for an answer at single tokens: which kind of mixing an operator can do."""
