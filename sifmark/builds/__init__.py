"""Building images: one recipe or many, the records of builds, and the ledger of trusted digests."""
