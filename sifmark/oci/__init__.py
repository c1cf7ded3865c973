"""Registries and OCI image layouts: client, credentials, manifests and tags."""
