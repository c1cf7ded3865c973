"""The parent process: runs one after the other, each in a child that is supervised and metered."""
