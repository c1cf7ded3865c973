"""Moving images to and from registries and folders, and the policy that says which may be moved."""
