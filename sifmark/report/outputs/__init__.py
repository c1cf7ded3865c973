"""The tables and figures of studies: as documents print them, and filled with results."""
