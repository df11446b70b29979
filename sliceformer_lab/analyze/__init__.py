"""The command `python -m sliceformer_lab.analyze`: what the layers of finished runs do to their tokens."""
