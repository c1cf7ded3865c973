"""What goes into an image: one program that runs a workload and answers with one JSON document."""
