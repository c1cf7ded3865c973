"""Packing images, text, questions and speech into the large files that an image reads."""
