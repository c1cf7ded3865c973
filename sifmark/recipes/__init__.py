"""Recipes and the plans made of them: names, labels, build keys, locks and rendered build files."""
