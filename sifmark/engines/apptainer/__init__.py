"""The Apptainer engine: building, running, signing and inspecting SIF files."""
