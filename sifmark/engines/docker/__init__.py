"""The Docker engine: building, running, signing and inspecting images of a Docker daemon."""
