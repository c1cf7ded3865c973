"""Analyses over many results: scaling, screening of nodes, and the energy of whole jobs."""
