"""What results of studies say together: scaling, nodes that differ from others, and the energy of whole jobs."""
