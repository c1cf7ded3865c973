"""Study files as they are written: their lines, their variants and their runs, checked."""
