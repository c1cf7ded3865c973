"""What must hold within a result beyond its schema: named rules, the same in an image and on a host."""
