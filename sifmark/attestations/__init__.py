"""What is in an image and where it came from: its packages, SBOM documents and provenance."""
